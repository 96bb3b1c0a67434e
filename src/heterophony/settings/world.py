"""A setting's data, loaded and shared out: who holds what, and what everyone is tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from heterophony.base.seeds import derive, generator
from heterophony.data import (
    BaseIds,
    Data,
    DataError,
    Report,
    Source,
    Split,
    check_leakage,
    holdout,
    load,
    private_test,
    to_data,
)
from heterophony.data.augment import NAMED, Augmentation
from heterophony.data.sources import own as own_data
from heterophony.data.sources import require
from heterophony.data.stream import Drift, Stream
from heterophony.data.text import text_data
from heterophony.settings.setting import Concept, DataPart, Domain, Public

Rows = np.ndarray[Any, np.dtype[np.int64]]
View = Callable[[], Data]


@dataclass(frozen=True)
class World:
    """Views by participant, test sets by domain, and what the leakage check found.

    The views are "train", "own" (and the public rows of its domain), "all" (and all public rows), "public", "mine"
    (which rows of "public" are of its domain) and its domain's "validation".
    """

    homes: dict[str, str]  # participant -> domain
    views: dict[str, dict[str, View]]
    public: View | None
    tests: dict[str, dict[str, Data]]
    private_tests: dict[str, Data]
    shape: tuple[int, int, int]  # channels, side, classes (of the first label space)
    report: Report
    classes: dict[str, int]  # domain -> outputs that a model for it has
    tasks: dict[str, str]  # domain -> the first domain of the same label space; empty where there is one for all
    labels: dict[str, tuple[str, ...]]  # domain -> its classes' names
    reads: str = "images"  # or "texts", or "sequences", whose every next byte is predicted

    @property
    def label_spaces(self) -> str:
        """In words."""
        return _in_words(self.labels)

    @property
    def labelled(self) -> bool:
        """Whether the public data have labels of the participants' own (or joint) label space."""
        return self.public is not None and "y" in self.public().columns


@dataclass(frozen=True)
class _Shares:
    """The rows of one domain, by purpose."""

    spec: Domain
    train: Split
    clients: list[Rows]
    public: Rows
    proxy: Rows  # public rows that are held out
    validation: Rows
    test: Split
    private: list[Rows]


def build(spec: DataPart, seed: int, root: str | Path | None = None) -> World:
    """Load, split, share out and check."""
    domains = spec.all_domains()
    require(spec.sources, root)
    sources = {domain.source: load(domain.source, root, length=spec.length) for domain in domains.values()}
    reads = _reads(spec, domains, sources)
    spaces = {name: sources[domain.source].classes for name, domain in domains.items()}
    tasks = {name: next(first for first in spaces if spaces[first] == spaces[name]) for name in spaces}
    if len(set(tasks.values())) == 1:
        tasks = {}
    if tasks and spec.public is not None:
        raise DataError(f"public data need domains of one label space, but {_in_words(spaces)}: take data.public out")
    shares = {name: _share(spec, name, domain, sources[domain.source], seed) for name, domain in domains.items()}
    outside = (
        load(spec.public.source, root, length=spec.length)
        if spec.public is not None and spec.public.source is not None
        else None
    )
    form = _form(spec, sources)
    make = partial(_data, (*form, spec.mean, spec.std), {n: len(source.classes) for n, source in sources.items()})
    names = _participants(shares)
    _check_participants(spec, [name for own in names.values() for name in own])
    away = _away(spec, names)
    absent = {domain: shares.pop(domain) for domain in list(shares) if domain in spec.unseen}
    homes = {name: domain for domain in shares for name in names[domain] if name not in away}
    alike = outside is not None and outside.classes == next(iter(sources.values())).classes
    outputs = {name: len(classes) for name, classes in spaces.items()}
    public = _public(spec, shares, make, seed, outside, next(iter(outputs.values())), alike)
    views: dict[str, dict[str, View]] = {}
    for place, (domain, share) in enumerate(shares.items()):
        for i, rows in enumerate(share.clients):
            name = names[domain][i]
            if name in away:
                continue
            train: View = cache(partial(_train, spec, partial(make, share.train, rows, share.spec), name, seed))
            mine = cache(partial(make, share.train, share.public, share.spec))
            if spec.stream is not None:
                train = _stream(spec, shares, place, i, name, make, seed)
            own: dict[str, View] = {"train": train}
            if public is not None:
                own |= {"public": public, "mine": partial(_mine, public, place)}
                if spec.stream is None:
                    own |= {"own": partial(_joined, train, mine), "all": partial(_joined, train, public)}
            if len(share.validation):
                own["validation"] = partial(make, share.train, share.validation, share.spec)
            views[name] = own
    if spec.public is not None and spec.public.joint is not None and outside is not None:
        more = len(outside.classes_coarse if spec.public.joint == "coarse" else outside.classes)
        outputs = {name: count + more for name, count in outputs.items()}
    tests, private = _tests(spec, shares, make), _private(shares, names, make)
    for domain, share in absent.items():
        tests[domain] = {"unseen": make(share.test, np.arange(len(share.test)), share.spec)}
    for domain, share in shares.items():
        for name, rows in zip(names[domain], share.clients, strict=True):
            if name in away:  # what it would have trained on: nobody has seen it
                tests[name] = {"unseen": make(share.train, rows, share.spec)}
                tasks |= {name: tasks[domain]} if tasks else {}
    private = {name: data for name, data in private.items() if name not in away}
    return World(homes, views, public, tests, private, (*form, next(iter(outputs.values()))),
                 _check(spec, shares, absent, away, names, outside, seed),
                 outputs, tasks, spaces, reads)  # fmt: skip


def _away(spec: DataPart, names: dict[str, list[str]]) -> set[str]:
    """Who takes no part."""
    everyone = [name for own in names.values() for name in own]
    for name in spec.unseen:
        if name not in names and name not in everyone:
            known = ", ".join(dict.fromkeys([*names, *everyone]))
            raise DataError(f"data.unseen: no domain or participant is called {name!r}; there are {known}")
    away = {name for domain, own in names.items() for name in own if domain in spec.unseen or name in spec.unseen}
    if len(away) == len(everyone):
        raise DataError("data.unseen: nobody is left to take part")
    return away


def _in_words(spaces: dict[str, tuple[str, ...]]) -> str:
    texts = (f"{domain} has {len(names)} classes ({names[0]} to {names[-1]})" for domain, names in spaces.items())
    return ", ".join(texts)


def _reads(spec: DataPart, domains: dict[str, Domain], sources: dict[str, Source]) -> str:
    """What all domains are made of; raises where a setting asks of texts what only images have."""
    kinds = {source.train.kind for source in sources.values()}
    if len(kinds) > 1:
        raise DataError(f"all domains must be of one kind, got {' and '.join(sorted(kinds))}")
    (kind,) = kinds
    if kind == "images" and spec.length is not None:
        raise DataError("data.length is for texts; images have a side")
    turned = any(domain.degrees for domain in domains.values())
    scaled = (spec.mean, spec.std) != (0.5, 0.5)
    if kind != "images" and (turned or spec.augment or spec.side or spec.channels or scaled):
        asked = "rotations, augment, side, channels, mean and std"
        raise DataError(f"{asked} are for images; {', '.join(domains)} are {kind}")
    concepts = spec.stream.concepts if spec.stream is not None else ()
    if kind != "images" and any(concept.degrees for concept in concepts):
        raise DataError(f"data.stream: {kind} cannot be turned")
    if kind == "sequences" and any(concept.labels for concept in concepts):
        raise DataError("data.stream: sequences have no labels to move on")
    if kind == "sequences" and any(own.label_noise for own in spec.participants.values()):
        raise DataError("label_noise needs labels; the domains are sequences")
    return kind


def _rng(seed: int, *purpose: object) -> np.random.Generator:
    return np.random.default_rng(derive(seed, "world", *purpose))


def _share(spec: DataPart, name: str, domain: Domain, source: Source, seed: int) -> _Shares:
    # Base images are split once for a set, however many domains are made of it (and sentences for all languages they
    # are in); a leaky split does it per domain.
    rng = _rng(seed, source.parallel or own_data.short(domain.source), name if spec.leaky else "")
    train, test = source.train, source.test
    rows = np.arange(len(train))
    if spec.test is not None or not len(test):
        if spec.test is None:
            raise DataError(f"{domain.source} has no test half: set data.test to the fraction to hold out")
        rows, out = holdout(rows, spec.test, rng)
        test = train.take(out)
    if spec.test_rows is not None and spec.test_rows < len(test):
        test = test.take(np.sort(rng.permutation(len(test))[: spec.test_rows]))
    fraction = spec.public.fraction if spec.public is not None else None
    # Later fractions are of what was there at first: public = validation = 0.1 are equal shares.
    rows, validation = (
        holdout(rows, spec.validation * len(train) / len(rows), rng) if spec.validation else (rows, rows[:0])
    )
    rows, public = holdout(rows, fraction * len(train) / len(rows), rng) if fraction else (rows, rows[:0])
    held = spec.public.test if spec.public is not None else 0.0
    public, proxy = holdout(public, held, rng) if held else (public, public[:0])
    if domain.rows is not None:
        if domain.rows > len(rows):
            raise DataError(f"domain {name}: {domain.rows} rows wanted, {len(rows)} are there")
        rows = np.sort(rng.permutation(rows)[: domain.rows])
    draw = _rng(seed, name, "clients")
    try:
        parts = spec.partition.build().split(train.y[rows], spec.clients, draw)
    except DataError as error:
        raise DataError(f"domain {name}: data.partition {error}") from None
    private = private_test(train.y[rows], parts, test.y, draw) if spec.private_test else []
    return _Shares(domain, train, [rows[part] for part in parts], public, proxy, validation, test, private)


def _participants(shares: dict[str, _Shares]) -> dict[str, list[str]]:
    """Ids: the domain's name, numbered where it has several clients; `c0, c1, ...` where there is one domain."""
    if len(shares) == 1:
        ((domain, share),) = shares.items()
        return {domain: [f"c{i}" for i in range(len(share.clients))]}
    plain = {domain: domain.replace("/", "-").replace(" ", "-") for domain in shares}
    if len(set(plain.values())) < len(plain):
        raise DataError(f"two domains would have one id: {', '.join(shares)}")
    return {
        domain: [plain[domain]]
        if len(share.clients) == 1
        else [f"{plain[domain]}.{i}" for i in range(len(share.clients))]
        for domain, share in shares.items()
    }


def _form(spec: DataPart, sources: dict[str, Source]) -> tuple[int, int]:
    """Channels and side that all images are brought to: the largest among the sets unless set."""
    shapes = [source.train.x.shape[1:] for source in sources.values()]
    if (kind := next(iter(sources.values())).train.kind) != "images":
        return 1, max(shape[0] for shape in shapes) - (kind == "sequences")
    channels = spec.channels or max(shape[2] for shape in shapes)
    side = spec.side or max(max(shape[:2]) for shape in shapes)
    return channels, side


def _data(
    form: tuple[int, int, float, float], classes: dict[str, int], split: Split, rows: Rows, domain: Domain | None
) -> Data:
    channels, side, mean, std = form
    if split.kind != "images":
        count = classes[domain.source] if domain is not None else None
        return text_data(split.x[rows], split.y[rows], classes=count, sequence=split.kind == "sequences")
    degrees, count = (domain.degrees, classes[domain.source]) if domain is not None else (0.0, None)
    images, labels = split.x[rows], split.y[rows]
    return to_data(images, labels, classes=count, side=side, channels=channels, degrees=degrees, mean=mean, std=std)


def _stream(
    spec: DataPart, shares: dict[str, _Shares], place: int, i: int, name: str, make: Callable[..., Data], seed: int
) -> Stream:
    """A participant's rows as they come. Where streams go from domain to domain, the rows of each domain's client i are
    shared between the clients i of all domains, so that nobody sees another's."""
    assert spec.stream is not None
    domains, part = list(shares), spec.stream
    wander = any(concept.domain for concept in part.concepts)
    views, pools = [], []
    for concept in part.concepts:
        domain = domains[(place + concept.domain) % len(domains)]
        share = shares[domain]
        rows = share.clients[i]
        if wander:
            rows = np.array_split(_rng(seed, domain, i, "stream").permutation(rows), len(domains))[place]
        view = partial(make, share.train, rows, _turned(share.spec, concept))
        views.append(cache(partial(_relabelled, partial(_train, spec, view, name, seed), concept.labels)))
        pools.append(concept.domain % len(domains))
    drift = Drift(part.drift, len(part.concepts), part.every)
    how: dict[str, Any] = {"arrivals": part.arrivals, "memory": part.memory, "keep": part.keep}
    return Stream(views, drift, pools=pools, name=name, seed=seed, **how)


def _turned(domain: Domain, concept: Concept) -> Domain:
    return domain.model_copy(update={"degrees": domain.degrees + concept.degrees})


def _relabelled(view: View, by: int) -> Data:
    data = view()
    return data.with_columns(y=(data.y + by) % data.classes) if by and data.classes else data


def _train(spec: DataPart, view: View, name: str, seed: int) -> Data:
    """A participant's private rows, with what is special about them."""
    data = view()
    own = spec.participants.get(name)
    if own is not None and own.label_noise:
        data = data.with_columns(y=_mislabelled(data, own.label_noise, _rng(seed, name, "label noise")))
    return data.augmented(_change(spec, spec.augment)) if spec.augment is not None else data


def _mislabelled(data: Data, share: float, rng: np.random.Generator) -> torch.Tensor:
    """The labels, with that share of them moved to another class, all others equally likely."""
    assert data.classes is not None
    rows = rng.permutation(len(data))[: round(share * len(data))]
    labels = data.y.clone()
    shift = torch.from_numpy(rng.integers(1, max(2, data.classes), len(rows)))
    labels[torch.from_numpy(rows)] = (labels[torch.from_numpy(rows)] + shift) % data.classes
    return labels


def _check_participants(spec: DataPart, names: list[str]) -> None:
    for name in spec.participants:
        if name not in names:
            raise DataError(f"data.participants: no participant is called {name!r}; there are {', '.join(names)}")


def _joined(*views: View) -> Data:
    """Rows of several views; without labels, where one has none."""
    parts = [view() for view in views]
    names = [name for name in ("x", "y") if all(name in part.columns for part in parts)]
    columns = {name: torch.cat([part.columns[name] for part in parts]) for name in names}
    return Data(classes=max(part.classes or 0 for part in parts), **columns).augmented(parts[0].augment)


def _public(
    spec: DataPart,
    shares: dict[str, _Shares],
    make: Callable[..., Data],
    seed: int,
    outside: Source | None,
    classes: int,
    alike: bool,
) -> View | None:
    """The rows that everybody holds, in one order; `domain` tells which domain each came from (-1: another set)."""
    if spec.public is None:
        return None
    if outside is None:
        view = partial(_inside, make, list(shares.values()), spec.public.labelled)
    else:
        rows = _public_rows(spec.public, outside, seed)
        view = partial(_outside, make, outside, rows, spec.public, classes, alike)
    change = None if spec.public.augment is None else _change(spec, spec.public.augment)
    return cache(partial(_augmented, view, change, seed))


def _change(spec: DataPart, name: str) -> Augmentation:
    """What training does to images; what it brings in is black, as these images have it."""
    return NAMED[name](fill=-spec.mean / spec.std)


def _augmented(view: View, change: Augmentation | None, seed: int) -> Data:
    """The public images, changed once: everyone predicts on, and learns from, the same ones."""
    data = view()
    if change is None:
        return data
    return data.with_columns(x=change.apply(data.x, change.draw(len(data), generator(seed, "public augment", "once"))))


def _public_rows(public: Public, outside: Source, seed: int) -> Rows:
    if public.rows is not None and public.rows > len(outside.train):
        raise DataError(f"{public.rows} public rows wanted, {outside.name} has {len(outside.train)}")
    if public.joint == "coarse" and outside.train.coarse is None:
        raise DataError(f"{outside.name} has no coarse labels")
    return np.sort(_rng(seed, "public").permutation(len(outside.train))[: public.rows])


def _inside(make: Callable[..., Data], shares: list[_Shares], labelled: bool) -> Data:
    parts = [make(share.train, share.public, share.spec) for share in shares]
    columns = {"x": torch.cat([p.x for p in parts])}
    columns["domain"] = torch.cat([torch.full((len(part),), i) for i, part in enumerate(parts)])
    if labelled:
        columns["y"] = torch.cat([p.y for p in parts])
    return Data(classes=parts[0].classes, **columns)


def _outside(make: Callable[..., Data], source: Source, rows: Rows, public: Public, classes: int, alike: bool) -> Data:
    split = source.train
    x = make(split, rows, None).x
    domain = torch.full((len(x),), -1)
    if public.joint is None:
        # Labels of another label space mean nothing here: then only logits on the images can be compared.
        columns = {"y": torch.from_numpy(split.y[rows])} if public.labelled and alike else {}
        return Data(classes=classes, x=x, domain=domain, **columns)
    labels, names = (split.y, source.classes) if public.joint == "fine" else (split.coarse, source.classes_coarse)
    assert labels is not None
    return Data(classes=classes + len(names), x=x, domain=domain, y=torch.from_numpy(labels[rows]) + classes)


def _mine(public: View, place: int) -> Data:
    """The numbers of the public rows that came from one domain; all, where they are another set's."""
    everyone = public()
    rows = torch.nonzero((everyone.domain == place) | (everyone.domain < 0)).flatten()
    return Data(classes=everyone.classes, row=rows)


def _tests(spec: DataPart, shares: dict[str, _Shares], make: Callable[..., Data]) -> dict[str, dict[str, Data]]:
    """By domain and split. Of a stream, `concept-0`, ... are what its participants are to know under each concept."""
    tests = {}
    for place, (domain, share) in enumerate(shares.items()):
        tests[domain] = {"test": make(share.test, np.arange(len(share.test)), share.spec)}
        if len(share.validation):
            tests[domain]["validation"] = make(share.train, share.validation, share.spec)
        if len(share.proxy):
            tests[domain]["proxy"] = make(share.train, share.proxy, share.spec)
        for number, concept in enumerate(spec.stream.concepts if spec.stream is not None else ()):
            there = list(shares.values())[(place + concept.domain) % len(shares)]
            view = partial(make, there.test, np.arange(len(there.test)), _turned(there.spec, concept))
            tests[domain][f"concept-{number}"] = _relabelled(view, concept.labels)
    return tests


def _private(shares: dict[str, _Shares], names: dict[str, list[str]], make: Callable[..., Data]) -> dict[str, Data]:
    return {
        names[domain][i]: make(share.test, rows, share.spec)
        for domain, share in shares.items()
        for i, rows in enumerate(share.private)
        if len(rows)
    }


def _check(
    spec: DataPart,
    shares: dict[str, _Shares],
    absent: dict[str, _Shares],
    away: set[str],
    names: dict[str, list[str]],
    outside: Source | None,
    seed: int,
) -> Report:
    views: dict[str, dict[str, BaseIds]] = {}
    if spec.public is not None and outside is not None:
        views["everyone"] = {"public": outside.train.ids(_public_rows(spec.public, outside, seed))}
    for domain, share in shares.items():
        common = {"validation": share.train.ids(share.validation), "public": share.train.ids(share.public)}
        views[f"domain {domain}"] = {**common, "proxy": share.train.ids(share.proxy), "test": share.test.ids()}
        for i, rows in enumerate(share.clients):
            if names[domain][i] in away:
                views[names[domain][i]] = {"test": share.train.ids(rows)}
                continue
            views[names[domain][i]] = {"train": share.train.ids(rows)}
            if share.private:
                views[names[domain][i]]["private-test"] = share.test.ids(share.private[i])
    views |= {f"domain {domain}": {"test": share.test.ids()} for domain, share in absent.items()}
    views = {name: {view: ids for view, ids in own.items() if len(ids.index)} for name, own in views.items()}
    # Domains made of one set share their base images on purpose: they are views of the same things.
    shared = len({share.spec.source for share in shares.values()}) < len(shares) or _kin(shares)
    return check_leakage(views, allow_leakage=spec.leaky, shared_train=shared)


def _kin(shares: dict[str, _Shares]) -> bool:
    """Whether two sets are made from the same images (MNIST-M from MNIST)."""
    bases = [share.train.base for share in shares.values()]
    return len(set(bases)) < len(bases)
