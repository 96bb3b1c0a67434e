"""A data set in memory: its images as uint8 NHWC, texts as rows of bytes, or arrays, labels, and each row's number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heterophony.data.errors import DataError
from heterophony.data.leakage import BaseIds
from heterophony.tasks.classification import Classification
from heterophony.tasks.sequence import Sequence
from heterophony.tasks.task import Task

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Half of a set: images (or texts) `x`, labels `y`, and `index`, the row of each in the set named `base`.

    Of sequences every byte is the label of those before it; their `y` says nothing. `arrays` have rows of any shape,
    as float32 or int64, which are read as they are, and targets `y` of any task. `groups` tells whose each row is. Rows
    `overlap` if they are windows that share steps with others of their group.
    """

    base: str
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    index: Labels
    coarse: Labels | None = None
    kind: Literal["images", "texts", "sequences", "arrays"] = "images"
    groups: npt.NDArray[Any] | None = None
    overlap: bool = False

    def __post_init__(self) -> None:
        _check_form(self.kind, self.x)
        if self.groups is not None and self.groups.shape != self.x.shape[:1]:
            raise DataError(f"{len(self.x)} rows need as many groups, got {self.groups.shape}")
        targets = self.kind == "arrays" and len(self.y) == len(self.x)  # numbers, masks and the like
        labels = self.labels if targets else self.y
        for name, column in (("labels", labels), ("index", self.index), ("coarse labels", self.coarse)):
            if column is not None and (column.dtype != np.int64 or column.shape != self.x.shape[:1]):
                raise DataError(f"{len(self.x)} {self.kind} need as many int64 {name}, got {column.shape}")
        if len(np.unique(self.index)) != len(self.index):
            raise DataError("the index names a row of the original set twice")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def labels(self) -> Labels:
        """The class of each row; all are of class 0 where rows have other targets than one class."""
        one = self.y.ndim == 1 and self.y.dtype == np.int64
        return self.y if one else np.zeros(len(self.x), np.int64)

    def take(self, rows: npt.NDArray[np.int64]) -> Split:
        """Return the given rows, in the given order."""
        coarse = None if self.coarse is None else self.coarse[rows]
        groups = None if self.groups is None else self.groups[rows]
        return Split(self.base, self.x[rows], self.y[rows], self.index[rows], coarse, self.kind, groups, self.overlap)

    def ids(self, rows: npt.NDArray[np.int64] | None = None) -> BaseIds:
        """Return the base images of all or some rows, for the leakage check."""
        chosen = slice(None) if rows is None else rows
        return BaseIds(self.base, self.index[chosen], self.labels[chosen])


def _check_form(kind: str, x: npt.NDArray[Any]) -> None:
    """Raise where rows do not have the type and the shape of their kind."""
    hint = ""
    if kind == "arrays":
        fits = x.dtype in (np.float32, np.int64) and x.ndim >= 2
        wanted = "float32 or int64 of shape (N, ...)"
    elif kind == "images":
        fits = x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3)
        wanted = "uint8 of shape (N, H, W, 1 or 3)"
        hint = "; set data.arrays for arrays of any shape"
    else:
        fits = x.dtype == np.uint8 and x.ndim == 2
        wanted = "uint8 of shape (N, bytes)"
    if not fits:
        raise DataError(f"{kind} must be {wanted}, got {x.dtype} {x.shape}{hint}")


@dataclass(frozen=True, eq=False)
class Source:
    """A named set with a train and a test half; a domain (`pacs/photo`) has all its images in `train`.

    Sets that are `parallel` (translations of the same sentences) have that name in common: row i is the same thing.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    classes_coarse: tuple[str, ...] = ()
    parallel: str = ""
    task: Task | None = None  # what the targets of arrays are; None: one of the classes for each row

    @property
    def targets(self) -> Task:
        """What the targets are."""
        if self.task is not None:
            return self.task
        number = len(self.classes)
        return Sequence(number) if self.train.kind == "sequences" else Classification(number)

    def __post_init__(self) -> None:
        for half in (self.train, self.test) if self.task is None else ():
            _in_range(half.y, self.classes, "label", "classes")
            if half.coarse is not None:
                _in_range(half.coarse, self.classes_coarse, "coarse label", "classes_coarse")


def split(
    base: str,
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    index: npt.NDArray[Any] | None = None,
    coarse: npt.NDArray[Any] | None = None,
) -> Split:
    """Make a `Split` from arrays as files hold them: grey images without a channel, labels of any integer type."""
    images = x[..., None] if x.ndim == 3 else x
    rows = np.arange(len(x)) if index is None else index
    return Split(base, images, _whole(y), _whole(rows), None if coarse is None else _whole(coarse))


def empty(base: str, like: Split) -> Split:
    """Return a half without images, of the same image shape."""
    coarse = None if like.coarse is None else like.coarse[:0]
    return Split(base, like.x[:0], like.y[:0], like.index[:0], coarse)


def _whole(column: npt.NDArray[Any]) -> Labels:
    if not np.issubdtype(column.dtype, np.integer):
        raise DataError(f"labels and rows must be integers, got {column.dtype}")
    return column.astype(np.int64)


def _in_range(labels: Labels, classes: tuple[str, ...], what: str, names: str) -> None:
    if not len(labels):
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise DataError(f"every {what} must be 0 or more, got {low}: number the classes from 0")
    if not classes:
        raise DataError(f"there is a {what} for each image, but no classes: give their names in `{names}`")
    if high >= len(classes):
        raise DataError(f"every {what} must be in 0..{len(classes) - 1}, got {low}..{high}")
