"""The check that keeps train, validation, public and test images apart, by the identity of the base image.

A rotated, resized or recoloured copy is the same base image: what counts is its set and its row there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from heterophony.base.wording import listed
from heterophony.data.errors import DataError

VIEWS = ("train", "validation", "public", "proxy", "test", "private-test")
# A private test set is a part of the test set by design (FML), so these two may overlap.
_APART = [pair for pair in combinations(VIEWS, 2) if pair != ("test", "private-test")]

Rows = npt.NDArray[np.int64]


class LeakageError(DataError):
    """The same base image is on both sides of a line that it must not cross."""


@dataclass(frozen=True, eq=False)
class BaseIds:
    """Base images of a view: rows `index` of the set `base` (such as `mnist/train`), with labels if known."""

    base: str
    index: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.index.ndim != 1 or (len(self.index) and not np.issubdtype(self.index.dtype, np.integer)):
            raise DataError(f"the base rows of {self.base} must be a list of integers, got {self.index.dtype}")
        if self.labels is not None and len(self.labels) != len(self.index):
            raise DataError(f"{self.base}: {len(self.index)} base rows but {len(self.labels)} labels")


Ids = BaseIds | Sequence[BaseIds]


@dataclass(frozen=True)
class Overlap:
    """Base images that two views share, and the participants that hold them there."""

    first: str
    second: str
    base: str
    images: int
    first_of: tuple[str, ...]
    second_of: tuple[str, ...]

    def __str__(self) -> str:
        if self.first == self.second:
            return f"{self.images} images of {self.base} are in the {self.first} views of {_some(self.first_of)}"
        return (
            f"{self.images} images of {self.base} are in {self.first} (of {_some(self.first_of)})"
            f" and in {self.second} (of {_some(self.second_of)})"
        )


@dataclass(frozen=True)
class Coverage:
    """How many base images each view holds, which classes it covers in each set, and what overlaps."""

    images: Mapping[str, int]
    classes: Mapping[str, Mapping[str, tuple[int, ...]]]
    overlaps: tuple[Overlap, ...] = field(default=())

    def untrained(self) -> tuple[str, ...]:
        """Say which classes are tested though nobody trains on them: one line a set."""
        gaps = []
        for name, views in self.classes.items():
            tested = {*views.get("test", ()), *views.get("private-test", ())}
            gap = sorted(tested - set(views.get("train", ())))
            if gap and "train" in views:
                gaps.append(
                    f"of {name} these classes are tested, but nobody trains on them: {listed(list(map(str, gap)))}"
                )
        return tuple(gaps)


def check(
    views: Mapping[str, Mapping[str, Ids]], *, allow_leakage: bool = False, shared_train: bool = False
) -> Coverage:
    """Check the views (participant -> view -> base images) of a whole federation, and report what they cover.

    Raises `LeakageError` where a base image is in two of train, validation, public, test, whoever holds it.
    `shared_train` lets participants train on the same base images (rotated domains do). `allow_leakage` lets
    everything pass and only reports it, as for a paper's own leaky split.
    """
    held = _collect(views)
    shared = _shared_train(held)
    leaks = _crossings(held)
    if leaks and not allow_leakage:
        raise LeakageError(
            f"{_worst(leaks)}: split the base images once, before they are rotated or handed out,"
            " or pass allow_leakage=True to reproduce a leaky split"
        )
    if shared and not (shared_train or allow_leakage):
        raise LeakageError(
            f"{_worst(shared)}: give every image to one participant,"
            " or pass shared_train=True where they share images on purpose"
        )
    return Coverage(_images(held), _classes(views), (*leaks, *shared))


# For each set and view: the distinct base rows that every participant holds.
_Held = dict[str, dict[str, dict[str, Rows]]]


def _collect(views: Mapping[str, Mapping[str, Ids]]) -> _Held:
    held: _Held = {}
    for participant, own in views.items():
        for view, ids in own.items():
            if view not in VIEWS:
                raise DataError(f"{participant} has a view {view!r}; the known ones are {', '.join(VIEWS)}")
            for part in _parts(ids):
                of = held.setdefault(part.base, {}).setdefault(view, {})
                before = of.get(participant, np.empty(0, np.int64))
                of[participant] = np.union1d(before, part.index.astype(np.int64))
    return held


def _crossings(held: _Held) -> list[Overlap]:
    found = []
    for base, by_view in held.items():
        unions = {view: _union(of.values()) for view, of in by_view.items()}
        for first, second in _APART:
            if first in unions and second in unions:
                both = np.intersect1d(unions[first], unions[second], assume_unique=True)
                if len(both):
                    holders = (_holders(by_view[first], both), _holders(by_view[second], both))
                    found.append(Overlap(first, second, base, len(both), *holders))
    return found


def _shared_train(held: _Held) -> list[Overlap]:
    found = []
    for base, by_view in held.items():
        of = by_view.get("train", {})
        rows, times = np.unique(np.concatenate([*of.values(), np.empty(0, np.int64)]), return_counts=True)
        both = rows[times > 1]
        if len(both):
            holders = _holders(of, both)
            found.append(Overlap("train", "train", base, len(both), holders, holders))
    return found


def _images(held: _Held) -> dict[str, int]:
    counts = {view: sum(len(_union(by.get(view, {}).values())) for by in held.values()) for view in VIEWS}
    return {view: count for view, count in counts.items() if count}


def _classes(views: Mapping[str, Mapping[str, Ids]]) -> dict[str, dict[str, tuple[int, ...]]]:
    seen: dict[str, dict[str, set[int]]] = {}
    for own in views.values():
        for view, ids in own.items():
            for part in _parts(ids):
                if part.labels is not None:
                    # The train and test halves of one set share their label space.
                    name = part.base.removesuffix("/train").removesuffix("/test")
                    labels = np.unique(part.labels).tolist()
                    seen.setdefault(name, {}).setdefault(view, set()).update(labels)
    return {name: {view: tuple(sorted(by[view])) for view in VIEWS if view in by} for name, by in seen.items()}


def _parts(ids: Ids) -> Sequence[BaseIds]:
    return (ids,) if isinstance(ids, BaseIds) else ids


def _union(rows: Iterable[Rows]) -> Rows:
    return np.unique(np.concatenate([*rows, np.empty(0, np.int64)]))


def _holders(of: Mapping[str, Rows], rows: Rows) -> tuple[str, ...]:
    return tuple(participant for participant, own in of.items() if np.isin(own, rows).any())


def _worst(overlaps: Sequence[Overlap]) -> str:
    first = max(overlaps, key=lambda overlap: overlap.images)
    others = len(overlaps) - 1
    return f"leakage: {first}" + (f" (and {others} more such pairs of views)" if others else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
