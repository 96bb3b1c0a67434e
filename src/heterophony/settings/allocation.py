"""Who gets which rows: the rows of each domain for testing, validation, public use and every client.

Only numbers of rows are handled here. `views.py` makes data of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heterophony.base.seeds import derive
from heterophony.data import (
    Coverage,
    DataError,
    Natural,
    Source,
    Split,
    check_leakage,
    holdout,
    holdout_of_groups,
    private_test,
    private_test_of_groups,
)
from heterophony.data.flower_partition import FlowerPartition
from heterophony.data.leakage import BaseIds
from heterophony.data.sources import own as own_data
from heterophony.settings.group_names import group_names
from heterophony.settings.setting import DataPart, DomainPart, PublicPart

Rows = np.ndarray[Any, np.dtype[np.int64]]
_BY_CLASS = ("dirichlet", "shards", "pathological")


@dataclass(frozen=True)
class DomainRows:
    """The rows of one domain, by purpose. All of them number rows of `train`, but for `private`: rows of `test`."""

    spec: DomainPart
    train: Split
    test: Split
    public: Rows
    proxy: Rows  # public rows that are held out
    validation: Rows
    clients: list[Rows]
    private: list[Rows]  # each client's private test; empty: there are none
    called: list[str] = field(default_factory=list)  # the clients after their groups; empty: they are numbered


@dataclass(frozen=True)
class OutsideRows:
    """Public rows of another set than the domains' own."""

    source: Source
    rows: Rows


@dataclass(frozen=True)
class Client:
    """One client of a domain and its rows."""

    name: str
    domain: str
    place: int  # of the domain among those that take part
    number: int  # among the clients of its domain
    rows: Rows


@dataclass(frozen=True)
class Allocation:
    """The rows of all domains, and who the participants are."""

    domains: dict[str, DomainRows]  # those that take part
    unseen: dict[str, DomainRows]  # those that everyone is only evaluated on
    names: dict[str, list[str]]  # domain -> ids of its clients
    away: set[str]  # clients that take no part
    outside: OutsideRows | None

    def clients(self) -> Iterator[Client]:
        """Yield the clients of all domains that take part, those that are away among them."""
        for domain in self.domains:
            yield from self.clients_of(domain)

    def clients_of(self, domain: str) -> Iterator[Client]:
        """Yield the clients of one domain."""
        place = list(self.domains).index(domain)
        for number, (name, rows) in enumerate(zip(self.names[domain], self.domains[domain].clients, strict=True)):
            yield Client(name, domain, place, number, rows)

    def participants(self) -> list[Client]:
        """Return the clients that take part."""
        return [client for client in self.clients() if client.name not in self.away]


def allocate(spec: DataPart, sources: Mapping[str, Source], outside: Source | None, seed: int) -> Allocation:
    """Decide who gets which rows.

    `sources` are the domains' data sets by name. `outside` is the set whose rows are public, if that is another one.
    """
    domains = {
        name: divide(spec, name, domain, sources[domain.source], seed) for name, domain in spec.all_domains().items()
    }
    names = client_names(domains)
    _check_participants(spec, names)
    away = _away(spec, names)
    public = None
    if spec.public is not None and outside is not None:
        public = OutsideRows(outside, _outside_rows(spec.public, outside, seed))
    return Allocation(
        domains={name: held for name, held in domains.items() if name not in spec.unseen},
        unseen={name: held for name, held in domains.items() if name in spec.unseen},
        names=names,
        away=away,
        outside=public,
    )


def rng(seed: int, *purpose: object) -> np.random.Generator:
    """Return the random numbers for one purpose."""
    return np.random.default_rng(derive(seed, "world", *purpose))


# -- one domain ------------------------------------------------------------------------------------------------
def divide(spec: DataPart, name: str, domain: DomainPart, source: Source, seed: int) -> DomainRows:
    """Share out the rows of one domain by purpose: first what all have in common, then what each client has.

    Base images are divided once for a set, however many domains are made of it, and sentences once for all languages
    they are in. A leaky split divides them anew for each domain.
    """
    draw = rng(seed, source.parallel or own_data.short(domain.source), name if spec.leaky else "")
    try:
        rows, test = _test_rows(spec, domain, source, draw)
        rows, validation = _take_out(spec, source.train, rows, spec.validation, draw)
        rows, public, proxy = _public_rows(spec, source.train, rows, draw)
    except DataError as error:
        named = source.train.groups is not None or source.train.overlap
        raise DataError(f"domain {name}: {error}" if named else str(error)) from None
    rows = _at_most(name, domain, rows, draw)

    draw = rng(seed, name, "clients")
    labels = source.train.labels[rows]
    groups = None if source.train.groups is None else source.train.groups[rows]
    try:
        parts = _parts(spec, labels, groups, draw)
    except DataError as error:
        raise DataError(f"domain {name}: data.partition {error}") from None
    private = _private(spec, name, labels, groups, parts, test, draw) if spec.private_test else []
    return DomainRows(
        spec=domain,
        train=source.train,
        test=test,
        public=public,
        proxy=proxy,
        validation=validation,
        clients=[rows[part] for part in parts],
        private=private,
        called=_called(spec, groups, parts),
    )


def _called(spec: DataPart, groups: Rows | None, parts: Sequence[Rows]) -> list[str]:
    """Return what clients are called that are groups of rows of one's own; empty where they are not."""
    if groups is None or spec.partition.kind != "natural" or spec.clients != 1:
        return []
    column = None if spec.layout is None else spec.layout.group
    return group_names([groups[part] for part in parts], column)


def _test_rows(spec: DataPart, domain: DomainPart, source: Source, draw: np.random.Generator) -> tuple[Rows, Split]:
    """Return the rows that are left to train on, and the test set."""
    rows, test = np.arange(len(source.train)), source.test
    if spec.test is None and not len(test):
        raise DataError(f"{domain.source} has no test half: set data.test to the fraction to hold out")
    if spec.test is not None:
        rows, out = _held_out(spec, source.train, rows, spec.test, draw)
        test = source.train.take(out)
    if spec.test_rows is not None and spec.test_rows < len(test):
        test = test.take(np.sort(draw.permutation(len(test))[: spec.test_rows]))
    return rows, test


def _public_rows(spec: DataPart, train: Split, rows: Rows, draw: np.random.Generator) -> tuple[Rows, Rows, Rows]:
    """Return the rows that stay private, the public ones, and the public ones that are held out."""
    public = spec.public
    if public is None or public.fraction is None:
        return rows, rows[:0], rows[:0]
    rows, shared = _take_out(spec, train, rows, public.fraction, draw)
    if not public.test:
        return rows, shared, shared[:0]
    shared, proxy = _held_out(spec, train, shared, public.test, draw)
    return rows, shared, proxy


def _take_out(spec: DataPart, train: Split, rows: Rows, share: float, draw: np.random.Generator) -> tuple[Rows, Rows]:
    """Take a share out of the rows that are left. It is a share of all rows that there were at first.

    So public = validation = 0.1 are equally many rows.
    """
    if not share:
        return rows, rows[:0]
    first, left = len(train), len(rows)
    if train.groups is not None and spec.split == "group":  # where groups are counted instead
        first, left = len(np.unique(train.groups)), len(np.unique(train.groups[rows]))
    return _held_out(spec, train, rows, share * first / left, draw)


def _held_out(spec: DataPart, train: Split, rows: Rows, share: float, draw: np.random.Generator) -> tuple[Rows, Rows]:
    """Hold out a share of the rows: of any, or by the groups that there are."""
    if train.overlap and spec.split == "row" and not spec.leaky:
        raise DataError(
            "windows share steps with each other, so none can be held out alone: set data.arrays.window.step to its "
            'rows, or data.split = "group", or give a test half'
        )
    if train.groups is not None:
        return holdout_of_groups(rows, share, draw, train.groups[rows], whole=spec.split == "group")
    if spec.split == "group":
        raise DataError('data.split = "group" needs groups: name their column in data.arrays.group')
    return holdout(rows, share, draw)


def _parts(spec: DataPart, labels: Rows, groups: np.ndarray[Any, Any] | None, draw: np.random.Generator) -> list[Rows]:
    """Return the rows of each client. A natural partition makes one of each group, unless it is told how many."""
    partition, clients = spec.partition.build(), spec.clients
    if spec.task.kind != "classification" and spec.partition.kind in _BY_CLASS:
        raise DataError(
            f"{spec.partition.kind} shares rows out by their class; {spec.task.kind} has no one class for a row: "
            "take iid, quantity or natural"
        )
    if isinstance(partition, FlowerPartition):
        return partition.split(labels, clients, draw, groups)
    if not isinstance(partition, Natural):
        return partition.split(labels, clients, draw)
    if groups is None:
        raise DataError("natural needs groups: name their column in data.partition.by or data.arrays.group")
    if clients == 1:
        clients = partition.count(labels, groups)
    return partition.split(labels, clients, draw, groups)


def _private(
    spec: DataPart,
    name: str,
    labels: Rows,
    groups: np.ndarray[Any, Any] | None,
    parts: list[Rows],
    test: Split,
    draw: np.random.Generator,
) -> list[Rows]:
    """Return each client's own test rows: those of its groups, or a share by its classes."""
    if groups is None or spec.partition.kind != "natural":
        return private_test(labels, parts, test.labels, draw)
    if test.groups is None:
        raise DataError(f"domain {name}: data.private_test: the test half has no groups: set data.arrays.test_group")
    private = private_test_of_groups(groups, parts, test.groups)
    if not any(len(rows) for rows in private):
        raise DataError(
            f'domain {name}: data.private_test: no participant\'s group has test rows: take them by data.split = "row"'
        )
    return private


def _at_most(name: str, domain: DomainPart, rows: Rows, draw: np.random.Generator) -> Rows:
    """Draw as many private rows as the domain is to have."""
    if domain.rows is None:
        return rows
    if domain.rows > len(rows):
        raise DataError(f"domain {name}: {domain.rows} rows wanted, {len(rows)} are there")
    return np.sort(draw.permutation(rows)[: domain.rows])


def _outside_rows(public: PublicPart, outside: Source, seed: int) -> Rows:
    """Draw the public rows of another set."""
    total = len(outside.train)
    if public.rows is not None and public.rows > total:
        raise DataError(f"{public.rows} public rows wanted, {outside.name} has {total}")
    if public.joint == "coarse" and outside.train.coarse is None:
        raise DataError(f"{outside.name} has no coarse labels")
    return np.sort(rng(seed, "public").permutation(total)[: public.rows])


# -- who there is ----------------------------------------------------------------------------------------------
def client_names(domains: Mapping[str, DomainRows]) -> dict[str, list[str]]:
    """Name the clients: after their groups, or `c0, c1, ...`; behind their domain's name where there are several."""
    if len(domains) == 1:
        ((domain, held),) = domains.items()
        return {domain: held.called or [f"c{i}" for i in range(len(held.clients))]}
    plain = {domain: domain.replace("/", "-").replace(" ", "-") for domain in domains}
    if len(set(plain.values())) < len(plain):
        raise DataError(f"two domains would have the same id: {', '.join(domains)}")
    return {domain: _several(plain[domain], held) for domain, held in domains.items()}


def _several(domain: str, held: DomainRows) -> list[str]:
    """Name the clients of one domain of several."""
    if len(held.clients) == 1:
        return [domain]
    own = [name.replace(".", "-") for name in held.called]  # a point parts the domain from the rest
    return [f"{domain}.{name}" for name in (own if len(set(own)) > 1 else range(len(held.clients)))]


def _check_participants(spec: DataPart, names: Mapping[str, list[str]]) -> None:
    """Raise where the setting says something of a participant that there is not."""
    everyone = _everyone(names)
    for name in spec.participants:
        if name not in everyone:
            raise DataError(f"data.participants: no participant is called {name!r}; there are {', '.join(everyone)}")


def _away(spec: DataPart, names: Mapping[str, list[str]]) -> set[str]:
    """Return the clients that take no part: those named, and all of a domain that is named."""
    everyone = _everyone(names)
    for name in spec.unseen:
        if name not in names and name not in everyone:
            known = ", ".join(dict.fromkeys([*names, *everyone]))
            raise DataError(f"data.unseen: no domain or participant is called {name!r}; there are {known}")
    away = {name for name in everyone if name in spec.unseen}
    for domain in names.keys() & set(spec.unseen):
        away |= set(names[domain])
    if len(away) == len(everyone):
        raise DataError("data.unseen: nobody is left to take part")
    return away


def _everyone(names: Mapping[str, list[str]]) -> list[str]:
    return [name for own in names.values() for name in own]


# -- leakage ---------------------------------------------------------------------------------------------------
def check(spec: DataPart, allocation: Allocation) -> Coverage:
    """Check that no base image is trained and tested on; return which ones each purpose covers."""
    views: dict[str, dict[str, BaseIds]] = {}
    if allocation.outside is not None:
        views["everyone"] = {"public": allocation.outside.source.train.ids(allocation.outside.rows)}
    for domain, held in allocation.domains.items():
        views[f"domain {domain}"] = _common_ids(held)
        views |= {client.name: _client_ids(allocation, client) for client in allocation.clients_of(domain)}
    for domain, held in allocation.unseen.items():
        views[f"domain {domain}"] = {"test": held.test.ids()}
    filled = {name: {view: ids for view, ids in own.items() if len(ids.index)} for name, own in views.items()}
    return check_leakage(filled, allow_leakage=spec.leaky, shared_train=_share_images(allocation))


def _common_ids(held: DomainRows) -> dict[str, BaseIds]:
    """Return the base images of a domain that are no client's own."""
    return {
        "validation": held.train.ids(held.validation),
        "public": held.train.ids(held.public),
        "proxy": held.train.ids(held.proxy),
        "test": held.test.ids(),
    }


def _client_ids(allocation: Allocation, client: Client) -> dict[str, BaseIds]:
    """Return the base images of one client. The rows of one that takes no part are test rows."""
    held = allocation.domains[client.domain]
    rows = held.train.ids(client.rows)
    if client.name in allocation.away:
        return {"test": rows}
    if not held.private:
        return {"train": rows}
    return {"train": rows, "private-test": held.test.ids(held.private[client.number])}


def _share_images(allocation: Allocation) -> bool:
    """Return whether domains are views of the same base images on purpose: of one set, or of sets made from one."""
    held = list(allocation.domains.values())
    sources = {each.spec.source for each in held}
    bases = {each.train.base for each in held}
    return len(sources) < len(held) or len(bases) < len(held)
