"""Arrays of any shape from a user's own file, taken as they are: nothing is resized, cast or scaled unless asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heterophony.data.errors import DataError
from heterophony.data.sources.columns import Columns, is_number, opened
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Labels, Source, Split

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayLayout:
    """Which arrays (or columns) of a file are what, and what is done to them.

    A key that ends with `.npy` names a file beside the one that is read.
    """

    # What networks read: one array; or several of one shape, which become the channels of a row. By default `x` or
    # `train_x`, the array of an `.npy` file, or all columns of a table but those of labels and groups.
    x: str | tuple[str, ...] | None = None
    # Labels: whole numbers from 0, or others, of which each becomes a class. By default `y` or `train_y`.
    y: str | None = None
    # Whose each row is: a person, a device, a hospital.
    group: str | None = None
    # The test half: a file beside this one, or arrays of this one.
    test_file: str | None = None
    test_x: str | tuple[str, ...] | None = None
    test_y: str | None = None
    test_group: str | None = None
    # x * scale + offset; numbers, or keys of the same file.
    scale: float | str = 1.0
    offset: float | str = 0.0
    dtype: Literal["float32", "int64"] | None = None
    # The stored axes in the order in which networks read them; rows come first.
    axes: tuple[int, ...] = ()
    # Names of the classes, in their order.
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArrayFile:
    """Reads a file of one's own by its layout."""

    layout: ArrayLayout = ArrayLayout()

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        path = root / entry.folders[0]
        return path if path.is_file() else None

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        return source(entry, opened(root / entry.folders[0]), self.layout)


@dataclass(frozen=True)
class _Half:
    """One half of a set before its labels are numbered."""

    file: Columns
    x: Column
    y: Column
    y_key: str
    groups: Column | None


def source(entry: KnownSet, file: Columns, layout: ArrayLayout) -> Source:
    """Make a source of the columns of a file."""
    keys = _keys(file, layout)
    halves = [_half(file, keys)]
    if test := _test_keys(file, layout, keys):
        halves.append(_half(*test))
    labels, classes = _numbered(halves, layout.classes or _class_names(file, keys))
    splits = [
        Split(f"{entry.identity}/{name}", half.x, y, np.arange(len(y)), kind="arrays", groups=half.groups)
        for name, half, y in zip(("train", "test"), halves, labels, strict=False)
    ]
    train = splits[0]
    test_half = splits[1] if len(splits) > 1 else replace(train.take(np.arange(0)), base=f"{entry.identity}/test")
    if test_half.x.shape[1:] != train.x.shape[1:] or test_half.x.dtype != train.x.dtype:
        what = f"{train.x.dtype} {train.x.shape[1:]} to train on and {test_half.x.dtype} {test_half.x.shape[1:]}"
        raise DataError(f"{file.path}: rows are {what} to test on: they must be alike")
    return Source(entry.name, classes, train, test_half)


def values(file: Columns, layout: ArrayLayout) -> Column:
    """Return what networks read, of a file that needs no labels."""
    return _values(file, _keys(file, layout))


# -- keys ------------------------------------------------------------------------------------------------------
def _keys(file: Columns, layout: ArrayLayout) -> ArrayLayout:
    """Return the layout with the keys of the training half, where they are not given."""
    y = layout.y or ("train_y" if "train_y" in file.columns and "y" not in file.columns else "y")
    if layout.x is not None:
        return replace(layout, y=y)
    if file.table:
        others = {y, layout.group, layout.scale, layout.offset}
        return replace(layout, x=tuple(name for name in file.columns if name not in others), y=y)
    if file.path.suffix == ".npy":
        return replace(layout, x=file.path.name, y=y)
    return replace(layout, x="train_x" if "train_x" in file.columns and "x" not in file.columns else "x", y=y)


def _test_keys(file: Columns, layout: ArrayLayout, keys: ArrayLayout) -> tuple[Columns, ArrayLayout] | None:
    """Return the file and the keys of the test half; None: there is none."""
    if layout.test_file is not None:
        path = file.path.parent / layout.test_file
        if not path.is_file():
            raise DataError(f"{file.path}: test_file: there is no file {path}")
        other = opened(path)
        x: str | tuple[str, ...] | None = layout.test_x or keys.x
        if path.suffix == ".npy" and layout.test_x is None and keys.x == file.path.name:
            x = path.name
        group = layout.test_group or keys.group
        return other, replace(keys, x=x, y=layout.test_y or keys.y, group=group)
    by_name = layout.x is None and keys.x == "train_x" and "test_x" in file.columns
    if layout.test_x is None and not by_name:
        if layout.test_y is not None or layout.test_group is not None:
            raise DataError(f"{file.path}: test_y and test_group go with test_x or test_file")
        return None
    return file, replace(
        keys, x=layout.test_x or "test_x", y=layout.test_y or "test_y", group=layout.test_group or None
    )


# -- one half --------------------------------------------------------------------------------------------------
def _half(file: Columns, keys: ArrayLayout) -> _Half:
    assert keys.y is not None
    y = file.get(keys.y)  # first: a key that is wrong is told before what is wrong in the columns
    x = _values(file, keys)
    if y.ndim != 1 or len(y) != len(x):
        raise DataError(
            f"{file.path}: {keys.y!r} must hold one label for each of {len(x)} rows, its shape is {y.shape}"
        )
    groups = None if keys.group is None else _groups(file, keys.group, len(x))
    return _Half(file, x, y, keys.y, groups)


def _values(file: Columns, keys: ArrayLayout) -> Column:
    """Return what networks read, as the layout wants it."""
    assert keys.x is not None
    names = (keys.x,) if isinstance(keys.x, str) else keys.x
    if not names:
        raise DataError(f"{file.path}: no column is left for x")
    parts = [file.numbers(name) for name in names]
    for name, part in zip(names, parts, strict=True):
        _check_finite(file, name, part)
        if part.ndim == 0 or part.shape != parts[0].shape:
            raise DataError(f"{file.path}: {name!r} has the shape {part.shape}, {names[0]!r} has {parts[0].shape}")
    # Columns of a table, and several arrays, stand beside each other in a row.
    joined = np.stack(parts, axis=1) if file.table or len(parts) > 1 else parts[0]
    said = ", ".join(map(repr, names[:3]))
    _check_shape(file, said, joined, keys)
    typed = _typed(file, said, _scaled(file, said, joined, keys), keys)
    return np.ascontiguousarray(np.transpose(typed, keys.axes) if keys.axes else typed)


def _check_finite(file: Columns, name: str, part: Column) -> None:
    if part.dtype.kind != "f" or not part.size:
        return
    bad = np.argwhere(~np.isfinite(part))
    if len(bad):
        value = part[tuple(bad[0])]
        raise DataError(f"{file.at(name, int(bad[0][0]))}: {value} is no number that can be trained on")


def _scaled(file: Columns, said: str, x: Column, keys: ArrayLayout) -> Column:
    """Return x * scale + offset as float32, if any of these is given."""
    if keys.scale == 1.0 and keys.offset == 0.0:
        return x
    scale = _factor(file, "scale", keys.scale, x)
    offset = _factor(file, "offset", keys.offset, x)
    made: Column = (x * scale + offset).astype(np.float32)
    if not np.isfinite(made).all():
        raise DataError(f"{file.path}: {said} times scale plus offset is not finite everywhere")
    return made


def _factor(file: Columns, what: str, given: float | str, x: Column) -> Column:
    """Return a scale or offset in a shape that goes with x.

    A list of numbers belongs to the axis of its length, and there must be one such axis alone.
    """
    if not isinstance(given, str):
        return np.array(given, dtype=np.float64)
    found = file.numbers(given).astype(np.float64)
    if found.size == 1:
        return found.reshape(())
    if found.ndim == 1:
        fits = [axis for axis, length in enumerate(x.shape) if length == len(found)]
        if len(fits) == 1:
            return found.reshape([-1 if axis == fits[0] else 1 for axis in range(x.ndim)])
    else:
        alike = found.ndim == x.ndim and all(length in (1, x.shape[axis]) for axis, length in enumerate(found.shape))
        if alike or found.shape == x.shape[1:]:
            return found
    raise DataError(
        f"{file.path}: {what} {given!r} has the shape {found.shape}, which does not tell the axis of x {x.shape}: "
        "give it as many axes as x has, of length 1 where it is the same"
    )


def _typed(file: Columns, said: str, x: Column, keys: ArrayLayout) -> Column:
    """Return x in a type that networks read. A type is changed where the layout says so; texts have none before."""
    wanted = keys.dtype or ("float32" if file.table else str(x.dtype))
    if wanted not in ("float32", "int64"):
        hint = 'set dtype = "float32"' + (" and, if they stand for others, scale and offset" * (x.dtype.kind in "iu"))
        raise DataError(f"{file.path}: {said} is {x.dtype}, networks read float32 (or int64, as tokens): {hint}")
    if wanted == "int64" and x.dtype.kind == "f" and (x != np.trunc(x)).any():
        row = int(np.argwhere(x != np.trunc(x))[0][0])
        raise DataError(f"{file.at(said.strip(chr(39)), row)}: int64 would cut off what is behind the point")
    return x.astype(wanted)


def _check_shape(file: Columns, said: str, x: Column, keys: ArrayLayout) -> None:
    """Raise where x has rows without values, or not the axes that are to be reordered."""
    if x.ndim < 2 or 0 in x.shape:
        raise DataError(f"{file.path}: {said} has the shape {x.shape}: rows and values are needed, as in (100, 6, 128)")
    if keys.axes and sorted(keys.axes) != list(range(x.ndim)):
        raise DataError(f"{file.path}: {said} has the shape {x.shape}: axes names each of 0..{x.ndim - 1} once")


def _groups(file: Columns, key: str, rows: int) -> Column:
    """Return whose each row is: whole numbers, or texts."""
    column = file.get(key)
    if column.shape != (rows,):
        raise DataError(
            f"{file.path}: {key!r} must name one group for each of {rows} rows, its shape is {column.shape}"
        )
    for row in np.flatnonzero(column.astype(str) == "")[:1]:
        raise DataError(f"{file.at(key, int(row))}: there is no value")
    whole = _whole(column)
    if whole is not None:
        return whole
    if column.dtype.kind != "U":
        raise DataError(f"{file.path}: {key!r} names groups by {column.dtype}: whole numbers or texts are needed")
    return column


def _class_names(file: Columns, keys: ArrayLayout) -> tuple[str, ...]:
    """Return the names of the classes that an array `classes` holds, where it is there for them."""
    used = {keys.x, keys.y, keys.group} | set(keys.x if isinstance(keys.x, tuple) else ())
    if file.table or "classes" not in file.columns or "classes" in used:
        return ()
    return tuple(str(name) for name in file.columns["classes"].reshape(-1))


# -- labels ----------------------------------------------------------------------------------------------------
def _numbered(halves: Sequence[_Half], names: tuple[str, ...]) -> tuple[list[Labels], tuple[str, ...]]:
    """Return the labels of both halves as numbers of classes, and the names of these."""
    whole = [_whole(half.y) for half in halves]
    numbers = [column for column in whole if column is not None]
    if len(numbers) < len(halves):
        return _named(halves, [_words(half) for half in halves], names)
    together = np.concatenate(numbers)
    if names and {str(label) for label in np.unique(together)} <= set(names):
        return _named(halves, [column.astype(str) for column in numbers], names)
    if names:
        _check_range(halves, numbers, len(names))
        return numbers, names
    if together.min() != 0 or together.max() >= len(together):
        distinct = tuple(str(label) for label in np.unique(together))
        return _named(halves, [column.astype(str) for column in numbers], distinct)
    return numbers, tuple(str(label) for label in range(int(together.max()) + 1))


def _named(
    halves: Sequence[_Half], columns: Sequence[Column], names: tuple[str, ...]
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


def _words(half: _Half) -> Column:
    """Return labels that are texts; raise where they are anything else."""
    if half.y.dtype.kind == "U":
        for row in np.flatnonzero(half.y == "")[:1]:
            raise DataError(f"{half.file.at(half.y_key, int(row))}: there is no label")
        return half.y
    if half.y.dtype.kind != "f":
        raise DataError(f"{half.file.path}: {half.y_key!r} holds {half.y.dtype}: labels are whole numbers or texts")
    row = int(np.flatnonzero(~(np.isfinite(half.y) & (half.y == np.trunc(half.y))))[0])
    raise DataError(f"{half.file.at(half.y_key, row)}: {half.y[row]} is no label: whole numbers or texts are needed")


def _check_range(halves: Sequence[_Half], columns: Sequence[Column], classes: int) -> None:
    for half, column in zip(halves, columns, strict=True):
        for row in np.flatnonzero((column < 0) | (column >= classes))[:1]:
            place = half.file.at(half.y_key, int(row))
            raise DataError(f"{place}: the label {column[row]} is not in 0..{classes - 1}")


def _whole(column: Column) -> Labels | None:
    """Return a column as whole numbers; None: it has others, or texts."""
    if column.dtype.kind in "biu":
        return column.astype(np.int64)
    if column.dtype.kind == "U" and all(is_number(word) for word in column):
        column = column.astype(np.float64)
    if column.dtype.kind != "f" or not np.isfinite(column).all() or (column != np.trunc(column)).any():
        return None
    return column.astype(np.int64)
