"""Ways to share the rows of a data set between clients.

Every partition is a frozen description with `split(labels, clients, rng)`, which returns one sorted array of
rows for each client. No row goes to two clients, and every row goes to one. Each of them ends, or says in one
line why it cannot.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from heterophony.data.errors import DataError

Rows = npt.NDArray[np.int64]
Column = npt.NDArray[Any]


class Partition(Protocol):
    """What every partition offers; only `Domain` and `Natural` look at `groups`."""

    def split(
        self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None
    ) -> list[Rows]: ...


@dataclass(frozen=True)
class Iid:
    """Rows dealt at random in parts of equal size."""

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        _enough(self, len(labels), clients, 1)
        return _sorted(np.array_split(rng.permutation(len(labels)), clients))


@dataclass(frozen=True)
class Dirichlet:
    """The rows of each class shared out by a draw from Dirichlet(alpha): small alpha, few classes each.

    A client that gets fewer than `min_size` rows is topped up with rows of the largest clients.
    """

    alpha: float
    min_size: int = 1

    def __post_init__(self) -> None:
        _positive(self, "alpha", self.alpha)
        _count(self, "min_size", self.min_size, 0)

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        _enough(self, len(labels), clients, self.min_size)
        hands: list[list[Rows]] = [[] for _ in range(clients)]
        for rows in _by_value(labels, rng):
            shares = rng.dirichlet(np.full(clients, self.alpha))
            for hand, part in zip(hands, _cut(rows, shares), strict=True):
                hand.append(part)
        parts = [rng.permutation(np.concatenate(hand)) if hand else _none() for hand in hands]
        return _sorted(_top_up(parts, self.min_size))


@dataclass(frozen=True)
class Shards:
    """FML's Non-IID: clients * per_client shards, each of one class if there are enough, dealt at random.

    Shards are cut at class boundaries, whatever the sizes of the classes: with one shard a class, no class is
    on two clients. With fewer shards than classes, a shard is made of whole classes.
    """

    per_client: int

    def __post_init__(self) -> None:
        _count(self, "per_client", self.per_client, 1)

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        wanted = clients * self.per_client
        _enough(self, len(labels), clients, self.per_client)
        classes = _by_value(labels, rng)
        shards = _cut_classes(classes, wanted) if wanted >= len(classes) else _join_classes(classes, wanted)
        dealt = rng.permutation(wanted).reshape(clients, self.per_client)
        return _sorted([np.concatenate([shards[shard] for shard in hand]) for hand in dealt])


@dataclass(frozen=True)
class Pathological:
    """Every client has exactly that many classes; a class is shared equally by the clients that have it."""

    classes_per_client: int

    def __post_init__(self) -> None:
        _count(self, "classes_per_client", self.classes_per_client, 1)

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        classes = _by_value(labels, rng)
        _enough(self, len(labels), clients, self.classes_per_client)
        self._feasible(len(classes), clients)
        holders: list[list[int]] = [[] for _ in classes]
        for client in rng.permutation(clients):
            # The classes that fewest clients have so far; chance decides between equals.
            order = np.lexsort((rng.random(len(classes)), np.array([len(own) for own in holders])))
            for chosen in order[: self.classes_per_client]:
                holders[chosen].append(int(client))
        hands: list[list[Rows]] = [[] for _ in range(clients)]
        for rows, own in zip(classes, holders, strict=True):
            if len(rows) < len(own):
                raise DataError(
                    f"{_said(self)}: a class has {len(rows)} rows for {len(own)} clients: use fewer clients"
                )
            for client, part in zip(own, np.array_split(rows, len(own)), strict=True):
                hands[client].append(part)
        return _sorted([np.concatenate(hand) for hand in hands])

    def _feasible(self, classes: int, clients: int) -> None:
        if self.classes_per_client > classes:
            raise DataError(f"{_said(self)}: there are only {classes} classes")
        if clients * self.classes_per_client < classes:
            raise DataError(f"{_said(self)}: {clients} clients cannot hold {classes} classes: use more of either")


@dataclass(frozen=True)
class Quantity:
    """Rows dealt at random in parts of unequal size: log-normal(sigma) or Dirichlet(alpha) weights.

    Every client gets `min_size` rows first; the weights share out the rest.
    """

    sigma: float | None = None
    alpha: float | None = None
    min_size: int = 1

    def __post_init__(self) -> None:
        if (self.sigma is None) == (self.alpha is None):
            raise DataError(f"{_said(self)}: give either sigma or alpha")
        if self.alpha is not None:
            _positive(self, "alpha", self.alpha)
        if self.sigma is not None and not 0 <= self.sigma <= 1e100:
            raise DataError(f"{_said(self)}: sigma must be at least 0 and at most 1e100")
        _count(self, "min_size", self.min_size, 0)

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        _enough(self, len(labels), clients, self.min_size)
        weights = self._weights(clients, rng)
        spare = len(labels) - clients * self.min_size
        sizes = self.min_size + np.diff(_bounds(weights / weights.sum(), spare))
        return _sorted(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))

    def _weights(self, clients: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        if self.alpha is not None:
            return rng.dirichlet(np.full(clients, self.alpha))
        normal = rng.standard_normal(clients)
        # Only the proportions count: with the largest weight at one, no sigma overflows.
        weights: npt.NDArray[np.float64] = np.exp((self.sigma or 0.0) * (normal - normal.max()))
        return weights


@dataclass(frozen=True)
class Domain:
    """One domain a client; with several clients a domain, `within` shares its rows between them.

    `groups` names the domain of each row. Clients come in the order of the sorted domain names.
    """

    within: Partition = field(default_factory=Iid)

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        _enough(self, len(labels), clients, 1)
        domains = _groups(self, labels, groups)
        each, rest = divmod(clients, len(domains))
        if rest or not each:
            raise DataError(f"{_said(self)}: {clients} clients for {len(domains)} domains: use as many or a multiple")
        parts = []
        for name, rows in domains.items():
            try:
                parts += [rows[own] for own in self.within.split(labels[rows], each, rng)]
            except DataError as error:
                raise DataError(f"Domain {name}: {error}") from None
        return _sorted(parts)


@dataclass(frozen=True)
class Natural:
    """Rows stay with their users: one user a client, or several whole users where there are fewer clients.

    `groups` names the user of each row. With one user a client, clients come in the order of sorted names. A user with
    fewer than `min_size` rows is joined with the next smallest, so that no row is lost and none leaves its user.
    """

    min_size: int = 1

    def __post_init__(self) -> None:
        _count(self, "min_size", self.min_size, 0)

    def count(self, labels: Column, groups: Column | None) -> int:
        """Return how many clients there are if each has one user, or users who were joined."""
        return len(self._users(labels, groups))

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        _enough(self, len(labels), clients, 1)
        users = self._users(labels, groups)
        if clients > len(users):
            raise DataError(f"{_said(self)}: {len(users)} users cannot make {clients} clients: use fewer clients")
        if clients == len(users):
            return users
        dealt = np.array_split(rng.permutation(len(users)), clients)
        return _sorted([np.concatenate([users[user] for user in hand]) for hand in dealt])

    def _users(self, labels: Column, groups: Column | None) -> list[Rows]:
        """Return the rows of each user, in the order of their names; those of too few rows are joined."""
        users = list(_groups(self, labels, groups).values())
        while len(users) > 1:
            order = sorted(range(len(users)), key=lambda user: len(users[user]))  # which keeps the order of equals
            if len(users[order[0]]) >= self.min_size:
                break
            first, second = sorted(order[:2])
            users[first] = np.sort(np.concatenate([users[first], users[second]]))
            del users[second]
        return users


def divide(rows: Rows, fractions: Sequence[float], rng: np.random.Generator) -> list[Rows]:
    """Cut rows at random by fractions that add up to one, such as those of train, public and test."""
    shares = np.asarray(fractions, dtype=np.float64)
    if len(shares) == 0 or not np.all(shares >= 0) or not math.isclose(shares.sum(), 1.0, abs_tol=1e-9):
        raise DataError(f"fractions must not be negative and must add up to 1, got {list(fractions)}")
    parts = _sorted(_cut(rng.permutation(np.asarray(rows, dtype=np.int64)), shares))
    for share, part in zip(shares, parts, strict=True):
        if share > 0 and not len(part):
            raise DataError(f"a fraction of {share:g} of {len(rows)} rows is less than one row")
    return parts


def holdout(rows: Rows, fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return the rows that stay and the fraction that is held out, drawn at random."""
    if not 0 <= fraction < 1:
        raise DataError(f"the fraction to hold out must be at least 0 and less than 1, got {fraction}")
    stay, out = divide(rows, (1 - fraction, fraction), rng)
    return stay, out


def holdout_of_groups(
    rows: Rows, fraction: float, rng: np.random.Generator, groups: Column, *, whole: bool
) -> tuple[Rows, Rows]:
    """Return the rows that stay and those held out; `groups` names the group of each of these rows.

    With `whole`, all rows of so large a share of the groups are held out, of one group at least, and one group at
    least stays. Otherwise each group gives about this share of its rows, and keeps one at least.
    """
    if not 0 <= fraction < 1:
        raise DataError(f"the fraction to hold out must be at least 0 and less than 1, got {fraction}")
    found = [np.flatnonzero(groups == name) for name in np.unique(groups)]
    if whole:
        if len(found) < 2:
            raise DataError(f"whole groups cannot be held out of {len(found)}: split by row")
        number = min(max(1, round(fraction * len(found))), len(found) - 1)
        chosen = [found[place] for place in rng.permutation(len(found))[:number]]
    else:
        chosen = _some_of_each(found, fraction, rng)
    out = np.zeros(len(rows), dtype=bool)
    out[np.concatenate([*chosen, _none()])] = True
    if not out.any():
        raise DataError(f"a fraction of {fraction:g} of {len(rows)} rows in {len(found)} groups is less than one row")
    return np.sort(rows[~out]), np.sort(rows[out])


def _some_of_each(found: Sequence[Rows], fraction: float, rng: np.random.Generator) -> list[Rows]:
    """Draw about this share of each group, and all in all as many: what one group rounds off, the next one gives."""
    chosen, due = [], float(rng.random())
    for own in found:
        due += fraction * len(own)
        number = min(int(due), len(own) - 1)
        due -= int(due)
        chosen.append(rng.permutation(own)[:number])
    return chosen


def private_test_of_groups(train_groups: Column, parts: Sequence[Rows], test_groups: Column) -> list[Rows]:
    """Return for each client the test rows of its own groups; a client of a tiny group may stay without."""
    return [np.flatnonzero(np.isin(test_groups, train_groups[part])) for part in parts]


def private_test(
    train_labels: Column, parts: Sequence[Rows], test_labels: Column, rng: np.random.Generator
) -> list[Rows]:
    """Test rows shared so that each client has the same share of every class as of the training rows (FML).

    Test rows of a class that no client trains on go to nobody; a client may stay without rows where the test
    set is small.
    """
    hands: list[list[Rows]] = [[] for _ in parts]
    for label in np.unique(test_labels):
        rows = rng.permutation(np.flatnonzero(test_labels == label))
        held = np.array([np.count_nonzero(train_labels[part] == label) for part in parts])
        if held.sum():
            for hand, own in zip(hands, _cut(rows, held / held.sum()), strict=True):
                hand.append(own)
    return _sorted([np.concatenate([*hand, _none()]) for hand in hands])


def _said(of: object) -> str:
    """Write a partition as a setting does: `shards (per_client = 2)`."""
    given = {field.name: getattr(of, field.name) for field in fields(of)}  # type: ignore[arg-type]
    shown = ", ".join(f"{name} = {value}" for name, value in given.items() if value is not None)
    return type(of).__name__.lower() + (f" ({shown})" if shown else "")


def _enough(of: object, rows: int, clients: int, each: int) -> None:
    if clients < 1:
        raise DataError(f"{_said(of)}: there must be at least one client, got {clients}")
    if rows < clients * each:
        need = f"{clients} clients need {clients * each} rows, there are {rows}"
        raise DataError(f"{_said(of)}: {need}: use fewer clients or ask for less each")


def _positive(of: object, name: str, value: float) -> None:
    # Larger numbers overflow in the draw, and are uniform for every purpose anyway.
    if not 0 < value <= 1e100:
        raise DataError(f"{_said(of)}: {name} must be positive and at most 1e100")


def _count(of: object, name: str, value: int, least: int) -> None:
    if value != int(value) or value < least:
        raise DataError(f"{_said(of)}: {name} must be a whole number of at least {least}")


def _groups(of: object, labels: Column, groups: Column | None) -> dict[str, Rows]:
    if groups is None or len(groups) != len(labels):
        raise DataError(f"{_said(of)}: pass groups=, an array that names the group of each of the {len(labels)} rows")
    return {str(name): np.flatnonzero(groups == name) for name in np.unique(groups)}


def _by_value(labels: Column, rng: np.random.Generator) -> list[Rows]:
    """Return the rows of each class, shuffled, in the order of the classes."""
    if labels.ndim != 1:
        raise DataError(f"labels must be one number a row, got shape {labels.shape}")
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    starts = np.unique(labels[order], return_index=True)[1][1:]
    return np.split(order, starts) if len(order) else []


def _bounds(shares: npt.NDArray[np.float64], rows: int) -> Rows:
    """Return where to cut that many rows, so that the parts follow the shares and no row is lost."""
    ends = np.rint(np.cumsum(shares) * rows).astype(np.int64)
    ends[-1] = rows
    return np.concatenate([np.zeros(1, np.int64), np.minimum(ends, rows)])


def _cut(rows: Rows, shares: npt.NDArray[np.float64]) -> list[Rows]:
    return np.split(rows, _bounds(shares, len(rows))[1:-1])


def _cut_classes(classes: Sequence[Rows], wanted: int) -> list[Rows]:
    """Cut classes into shards, at least one each.

    The class whose shards are largest is cut finer until there are enough shards. As long as shards are wanted, the
    largest has two rows or more, so no shard is ever empty.
    """
    pieces = [1] * len(classes)
    largest = [(-float(len(rows)), label) for label, rows in enumerate(classes)]
    heapq.heapify(largest)
    for _ in range(wanted - len(classes)):
        _, label = heapq.heappop(largest)
        pieces[label] += 1
        heapq.heappush(largest, (-len(classes[label]) / pieces[label], label))
    return [part for rows, count in zip(classes, pieces, strict=True) for part in np.array_split(rows, count)]


def _join_classes(classes: Sequence[Rows], wanted: int) -> list[Rows]:
    """Join classes to fewer shards than there are classes. Each is made of whole neighbouring classes."""
    groups = np.array_split(np.arange(len(classes)), wanted)
    return [np.concatenate([classes[label] for label in group]) for group in groups]


def _top_up(parts: list[Rows], least: int) -> list[Rows]:
    """Move rows from the largest parts to those below the least size; each step fills one or empties one."""
    sizes = np.array([len(part) for part in parts])
    for client in np.flatnonzero(sizes < least):
        while sizes[client] < least:
            donor = int(np.argmax(sizes))
            moved = min(least - sizes[client], sizes[donor] - least)
            parts[client] = np.concatenate([parts[client], parts[donor][-moved:]])
            parts[donor] = parts[donor][:-moved]
            sizes[client] += moved
            sizes[donor] -= moved
    return parts


def _sorted(parts: Iterable[Rows]) -> list[Rows]:
    return [np.sort(part).astype(np.int64) for part in parts]


def _none() -> Rows:
    return np.empty(0, np.int64)
