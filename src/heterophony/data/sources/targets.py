"""What is to be learnt of each row, by the kind of task: classes as numbers, or numbers, masks and the like."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from heterophony.base.wording import listed
from heterophony.data.errors import DataError
from heterophony.data.sources.columns import Column
from heterophony.data.sources.labels import Half, numbered, whole
from heterophony.data.sources.single import is_number
from heterophony.tasks.kinds import sized
from heterophony.tasks.task import Task

Found = tuple[list[Column], tuple[str, ...], Task | None]


def targets(halves: Sequence[Half], kind: str, names: tuple[str, ...]) -> Found:
    """Return the targets of all halves, the names of classes, and the task where it is another than classification.

    The first half is trained on. `names` are those of classes, as far as they are known.
    """
    if kind == "classification":
        columns, classes = numbered(halves, names)
        return list(columns), classes, None
    for half in halves:
        if half.y.ndim == 0 or len(half.y) != len(half.x):
            raise DataError(
                f"{half.file.path}: {half.y_key!r} must hold targets for each of {len(half.x)} rows, "
                f"its shape is {half.y.shape}"
            )
    found = [_READ[kind](half) for half in halves]
    if kind in ("segmentation", "sequence"):
        found = _by_name(found, names)
        classes = _classes(kind, halves[0], found, names)
        return found, classes, sized(kind, len(classes))
    widths = {_width(column) for column in found}
    if len(widths) > 1:
        wide = " and ".join(map(str, sorted(widths)))
        raise DataError(f"{halves[0].file.path}: {halves[0].y_key!r} has {wide} targets a row in its two halves")
    return found, (), sized(kind, widths.pop())


def _classes(kind: str, half: Half, columns: list[Column], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the classes of masks or sequences: those that are named, or one for each number up to the highest."""
    highest = max(int(column.max(initial=0)) for column in columns)
    if kind == "segmentation" and not names:
        _check_dense(half, np.unique(np.concatenate([np.unique(column) for column in columns])))
    classes = names or tuple(str(label) for label in range(max(2, highest + 1)))
    if highest >= len(classes):
        where = f"{half.file.path}: {half.y_key!r}"
        raise DataError(f"{where} has the label {highest}, but {len(classes)} classes are named")
    return classes


def _by_name(columns: list[Column], names: tuple[str, ...]) -> list[Column]:
    """Return labels as places in the names of the classes, where these are the numbers of all: `["0", "255"]`."""
    there = np.unique(np.concatenate([np.unique(column) for column in columns]))
    if not {str(label) for label in there} <= set(names):
        return columns
    place = np.array([names.index(str(label)) for label in there], dtype=np.int64)
    return [place[np.searchsorted(there, column)] for column in columns]


def _check_dense(half: Half, there: Column) -> None:
    """Raise where masks leave out most numbers, as those do that hold grey values such as 0 and 255."""
    if len(there) and 2 * len(there) < int(there.max()) + 1:
        few = listed([str(label) for label in there], 6)
        classes = json.dumps([str(label) for label in there]) if len(there) <= 6 else "all of them"
        raise DataError(
            f"{half.file.path}: {half.y_key!r} has the labels {few}: number the classes from 0, or set "
            f"data.arrays.classes = {classes}"
        )


def _width(column: Column) -> int:
    return 1 if column.ndim == 1 else int(column.shape[1])


def _numbers(half: Half) -> Column:
    """Return targets that are numbers, one or several a row."""
    y = half.y
    if y.dtype.kind == "U":
        for row in [place for place, word in enumerate(y.reshape(len(y), -1)[:, 0]) if not is_number(str(word))][:1]:
            raise DataError(f"{half.file.at(half.y_key, row)}: {str(y[row])!r} is no number")
        y = y.astype(np.float64)
    if y.dtype.kind not in "biuf" or y.ndim > 2:
        raise DataError(f"{half.file.path}: {half.y_key!r} must hold numbers, one row each, got {y.dtype} {y.shape}")
    for row in np.flatnonzero(~np.isfinite(y.reshape(len(y), -1)).all(1))[:1]:
        raise DataError(f"{half.file.at(half.y_key, int(row))}: the target is no finite number")
    return y.astype(np.float32)


def _yes_or_no(half: Half) -> Column:
    """Return labels that are 0 or 1, one or several a row."""
    y = _numbers(half)
    for row in np.flatnonzero(~np.isin(y, (0, 1)).reshape(len(y), -1).all(1))[:1]:
        raise DataError(f"{half.file.at(half.y_key, int(row))}: {half.y[row]} is not 0 or 1")
    return y.astype(np.int64)


def _places(half: Half, axes: int, what: str) -> Column:
    """Return labels at each place of a row, as whole numbers from 0."""
    y = whole(half.y)
    if y is None or y.ndim != axes + 1:
        raise DataError(
            f"{half.file.path}: {half.y_key!r} must hold {what} of whole numbers, got {half.y.dtype} {half.y.shape}"
        )
    if y.shape[1:] != half.x.shape[-axes:]:
        raise DataError(f"{half.file.path}: {half.y_key!r} has the shape {y.shape}, rows have {half.x.shape}")
    if y.min(initial=0) < 0:
        row = int(np.flatnonzero((y < 0).reshape(len(y), -1).any(1))[0])
        raise DataError(f"{half.file.at(half.y_key, row)}: the label {y.min()} is below 0")
    return y


def _masks(half: Half) -> Column:
    return _places(half, 2, "masks (rows, height, width)")


def _steps(half: Half) -> Column:
    return _places(half, 1, "labels (rows, places)")


_READ: dict[str, Callable[[Half], Column]] = {
    "regression": _numbers,
    "multilabel": _yes_or_no,
    "segmentation": _masks,
    "sequence": _steps,
}
