"""Labels as numbers of classes: whole numbers from 0 as they are, others by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.single import is_number
from heterophony.data.sources.source import Labels

_NEEDED = 'whole numbers or texts are needed; for numbers set data.task = { kind = "regression" }'
# What targets may be that are no one label a row, by how many axes they have.
_KINDS = {2: "sequences, several labels or numbers", 3: "masks (segmentation)"}


@dataclass(frozen=True)
class Half:
    """One half of a set before its labels are numbered."""

    file: Columns
    x: Column
    y: Column
    y_key: str
    groups: Column | None


def numbered(halves: Sequence[Half], names: tuple[str, ...]) -> tuple[list[Labels], tuple[str, ...]]:
    """Return the labels of all halves as numbers of classes, and the names of these.

    The first half is trained on. Without `names` of the classes, the others have none that it has not.
    """
    for half in halves:
        _check_one_each(half)
    columns, classes = _numbered(halves, names)
    if not names:
        _check_trained(halves, columns, classes)
        _check_several(halves[0], columns[0], classes)
    return columns, classes


def whole(column: Column) -> Labels | None:
    """Return a column as whole numbers; None: it has others, or texts."""
    if column.dtype.kind in "biu":
        return column.astype(np.int64)
    if column.dtype.kind == "U" and all(is_number(word) for word in column):
        column = column.astype(np.float64)
    if column.dtype.kind != "f" or not np.isfinite(column).all() or (column != np.trunc(column)).any():
        return None
    return column.astype(np.int64)


def _check_one_each(half: Half) -> None:
    if half.y.ndim != 1 or len(half.y) != len(half.x):
        kind = _KINDS.get(half.y.ndim) if half.y.shape[:1] == half.x.shape[:1] else None
        raise DataError(
            f"{half.file.path}: {half.y_key!r} must hold one label for each of {len(half.x)} rows, "
            f"its shape is {half.y.shape}" + (f": for {kind} set data.task" if kind else "")
        )


def _check_several(half: Half, column: Labels, classes: tuple[str, ...]) -> None:
    """Raise where all rows have one label, so that there is nothing to learn and every network is right."""
    if len(column) > 1 and (column == column[0]).all():
        raise DataError(
            f"{half.file.path}: all {len(column)} labels of {half.y_key!r} are {classes[int(column[0])]!r}: "
            "two classes are needed, or their names in data.arrays.classes"
        )


def _check_trained(halves: Sequence[Half], columns: Sequence[Labels], classes: tuple[str, ...]) -> None:
    """Raise where a test label is none of the training rows', which may be a slip of the pen."""
    for half, column in zip(halves[1:], columns[1:], strict=True):
        for row in np.flatnonzero(~np.isin(column, columns[0]))[:1]:
            label = classes[int(column[row])]
            raise DataError(
                f"{half.file.at(half.y_key, int(row))}: no training row has the label {label!r}: "
                "name all classes in data.arrays.classes"
            )


def _numbered(halves: Sequence[Half], names: tuple[str, ...]) -> tuple[list[Labels], tuple[str, ...]]:
    """Return labels as numbers of classes, and the names of the classes: those given, or those that labels have."""
    found = [whole(half.y) for half in halves]
    numbers = [column for column in found if column is not None]
    if len(numbers) < len(halves):
        return _named(halves, [_words(half, names) for half in halves], names)
    together = np.concatenate(numbers)
    if names and set(_distinct(together)) <= set(names):  # names that look like numbers
        return _named(halves, [column.astype(str) for column in numbers], names)
    if names:
        _check_range(halves, numbers, len(names))
        return numbers, names
    if together.min() != 0 or together.max() >= len(together):
        return _named(halves, [column.astype(str) for column in numbers], _distinct(together))
    return numbers, tuple(str(label) for label in range(int(together.max()) + 1))


def _distinct(labels: Labels) -> tuple[str, ...]:
    """Return the labels that there are, in their order as numbers."""
    return tuple(str(label) for label in np.unique(labels))


def _named(
    halves: Sequence[Half], columns: Sequence[Column], names: tuple[str, ...]
) -> tuple[list[Labels], tuple[str, ...]]:
    """Number labels by the names of the classes: those given, or all that there are."""
    classes = names or tuple(str(word) for word in np.unique(np.concatenate(columns)))
    place = {name: number for number, name in enumerate(classes)}
    made = []
    for half, column in zip(halves, columns, strict=True):
        for row, word in enumerate(column):
            if str(word) not in place:
                raise DataError(f"{half.file.at(half.y_key, row)}: {str(word)!r} is none of the classes {classes}")
        made.append(np.array([place[str(word)] for word in column], dtype=np.int64))
    return made, classes


def _words(half: Half, names: tuple[str, ...]) -> Column:
    """Return labels that are texts; raise where they are anything else."""
    if half.y.dtype.kind == "U":
        for row in np.flatnonzero(half.y == "")[:1]:
            raise DataError(f"{half.file.at(half.y_key, int(row))}: there is no label")
        if not names:
            _check_no_measures(half)
        return half.y
    if half.y.dtype.kind != "f":
        raise DataError(f"{half.file.path}: {half.y_key!r} holds {half.y.dtype}: labels are whole numbers or texts")
    row = int(np.flatnonzero(~(np.isfinite(half.y) & (half.y == np.trunc(half.y))))[0])
    raise DataError(f"{half.file.at(half.y_key, row)}: {half.y[row]} is no label: {_NEEDED}")


def _check_no_measures(half: Half) -> None:
    """Raise where words are numbers with a fraction, which are something to measure and no names of classes."""
    if not all(map(is_number, half.y)):
        return
    numbers = half.y.astype(np.float64)
    for row in np.flatnonzero(~np.isfinite(numbers) | (numbers != np.trunc(numbers)))[:1]:
        raise DataError(f"{half.file.at(half.y_key, int(row))}: {str(half.y[row])!r} is no label: {_NEEDED}")


def _check_range(halves: Sequence[Half], columns: Sequence[Column], classes: int) -> None:
    for half, column in zip(halves, columns, strict=True):
        for row in np.flatnonzero((column < 0) | (column >= classes))[:1]:
            place = half.file.at(half.y_key, int(row))
            raise DataError(f"{place}: the label {column[row]} is not in 0..{classes - 1}: {classes} classes are named")
