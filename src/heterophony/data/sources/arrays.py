"""Arrays of any shape from a user's own data, taken as they are: nothing is resized, cast or scaled unless asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources import single, windows
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.keys import check_apart, check_x, filled, names_of, of_test, several
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.labels import Half, whole
from heterophony.data.sources.layout import ArrayLayout, Keys, TimeWindow
from heterophony.data.sources.source import Source, Split
from heterophony.data.sources.targets import targets


def source(entry: KnownSet, file: Columns, layout: ArrayLayout, test: Columns | None = None) -> Source:
    """Make a source of the columns of a file. `test` are those of the test half, where they lie elsewhere."""
    keys = filled(file, layout)
    halves = [_half(file, keys)]
    if test is not None:
        halves.append(_half(test, keys))
    elif found := of_test(file, layout, keys):
        if found[0] is file:
            check_apart(file, keys.x or (), found[1].x or ())
        halves.append(_half(*found))
    columns, classes, task = targets(halves, layout.task, layout.classes or _class_names(file, keys))
    splits = [
        _split(f"{entry.identity}/{name}", half, y, keys)
        for name, half, y in zip(("train", "test"), halves, columns, strict=False)
    ]
    train = splits[0]
    test_half = splits[1] if len(splits) > 1 else replace(train.take(np.arange(0)), base=f"{entry.identity}/test")
    if test_half.x.shape[1:] != train.x.shape[1:] or test_half.x.dtype != train.x.dtype:
        what = f"{train.x.dtype} {train.x.shape[1:]} to train on and {test_half.x.dtype} {test_half.x.shape[1:]}"
        raise DataError(f"{file.path}: rows are {what} to test on: they must be alike")
    return Source(entry.name, classes, train, test_half, task=task)


def values(file: Columns, layout: ArrayLayout) -> Column:
    """Return what networks read, of a file that needs no labels."""
    keys = filled(file, layout)
    if isinstance(keys.x, str) and keys.x not in file.columns and file.path.suffix in single.SUFFIXES:
        keys = replace(keys, x=file.path.name)  # what was trained on may have another name
    x = _joined(file, keys)
    if keys.window is None:
        return _finished(file, x, keys)
    group = keys.group if keys.group in file.columns else None  # whose rows these are need not be known
    groups = None if group is None else _groups(file, group, len(x))
    return _finished(file, _windows(file, x, groups, keys.window)[0], keys)


# -- one half --------------------------------------------------------------------------------------------------
def _half(file: Columns, keys: ArrayLayout) -> Half:
    """Return the columns of one half: rows as networks read them, or steps that are still to be cut into windows."""
    assert keys.y is not None
    y = stored(file, keys.y)  # first: a key that is wrong is told before what is wrong in the columns
    check_x(file, keys)
    x = _joined(file, keys)
    if keys.window is None:  # otherwise these are steps
        x = _finished(file, x, keys)
    groups = None if keys.group is None else _groups(file, keys.group, len(x))
    return Half(file, x, y, ", ".join(several(keys.y)), groups)


def _split(base: str, half: Half, y: Column, keys: ArrayLayout) -> Split:
    """Return one half as networks read it."""
    if keys.window is None:
        return Split(base, half.x, y, np.arange(len(y)), kind="arrays", groups=half.groups)
    cut, at = _windows(half.file, half.x, half.groups, keys.window)
    return Split(
        base,
        _finished(half.file, cut, keys),
        windows.labels(y, at, keys.window),
        np.arange(len(at)),
        kind="arrays",
        groups=None if half.groups is None else half.groups[at],
        overlap=keys.window.stride < keys.window.rows,
    )


def _windows(file: Columns, x: Column, groups: Column | None, window: TimeWindow) -> tuple[Column, windows.Starts]:
    at = windows.starts(window, file, len(x), groups)
    return windows.cut(x, at, window), at


def stored(file: Columns, keys: Keys) -> Column:
    """Return what is to be learnt: one column as it is; of several, numbers beside each other."""
    if isinstance(keys, str):
        return file.get(keys)
    parts = [file.numbers(key) for key in keys]
    for key, part in zip(keys, parts, strict=True):
        _check_finite(file, key, part)
        _check_like(file, key, part, keys[0], parts[0])
    return np.stack(parts, axis=1).astype(np.float32)


def _joined(file: Columns, keys: ArrayLayout) -> Column:
    """Return the values of a row as they are stored: of several columns beside each other."""
    assert keys.x is not None
    names = names_of(file, keys.x)
    parts = [file.numbers(name) for name in names]
    for name, part in zip(names, parts, strict=True):
        _check_finite(file, name, part)
        if part.ndim == 0:
            raise DataError(f"{file.path}: {name!r} is one number: rows and values are needed")
        _check_like(file, name, part, names[0], parts[0])
    beside = len(parts) > 1 or (file.table and parts[0].ndim == 1)
    return np.stack(parts, axis=1) if beside else parts[0]


def _check_like(file: Columns, name: str, part: Column, first: str, like: Column) -> None:
    if part.shape != like.shape:
        raise DataError(f"{file.path}: {name!r} has the shape {part.shape}, {first!r} has {like.shape}")


def _finished(file: Columns, x: Column, keys: ArrayLayout) -> Column:
    """Return what networks read, as the layout wants it."""
    assert keys.x is not None
    said = ", ".join(map(repr, several(keys.x)[:3]))
    _check_shape(file, said, x, keys)
    typed = _typed(file, said, _scaled(file, said, x, keys), keys)
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
    if not scale.any():
        raise DataError(f"{file.path}: scale {keys.scale!r} is 0, so that all values would become the same")
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
    """Return x in a type that networks read. A type is changed where the layout says so, or where there is none."""
    wanted = keys.dtype or ("float32" if _untyped(file, keys) else str(x.dtype))
    if wanted not in ("float32", "int64"):
        hint = 'set dtype = "float32"' + (" and, if they stand for others, scale and offset" * (x.dtype.kind in "iu"))
        raise DataError(f"{file.path}: {said} is {x.dtype}, networks read float32 (or int64, as tokens): {hint}")
    if wanted == "int64" and x.dtype.kind == "f" and (x != np.trunc(x)).any():
        bad = np.argwhere(x != np.trunc(x))[0]
        names = names_of(file, keys.x or ())
        name = names[bad[1]] if len(names) > 1 else names[0]
        place = file.at(name, int(bad[0])) if keys.window is None else f"{file.path}: {name!r}"
        raise DataError(f"{place}: int64 would cut off what is behind the point")
    return x.astype(wanted)


def _untyped(file: Columns, keys: ArrayLayout) -> bool:
    """Return whether x has no type of its own: texts have none, and the columns of a table may have one each."""
    assert keys.x is not None
    first = several(keys.x)[0]
    return file.texts or first.endswith(".txt") or (file.table and file.get(first).ndim == 1)


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
    if column.dtype.kind == "f":
        for row in np.flatnonzero(~np.isfinite(column))[:1]:
            raise DataError(f"{file.at(key, int(row))}: {column[row]} names no group")
    numbers = whole(column)
    if numbers is not None and len(np.unique(numbers)) == len(np.unique(column)):  # 01 and 1 may be two users
        return numbers
    if column.dtype.kind != "U":
        raise DataError(f"{file.path}: {key!r} names groups by {column.dtype}: whole numbers or texts are needed")
    return column


def _class_names(file: Columns, keys: ArrayLayout) -> tuple[str, ...]:
    """Return the names of the classes that are stored with the labels, or in an array `classes` that is for them."""
    if isinstance(keys.y, str) and keys.y in file.class_names:
        return file.class_names[keys.y]
    used = {*several(keys.x or ()), *several(keys.y or ()), keys.group}
    if file.table or "classes" not in file.columns or "classes" in used:
        return ()
    return tuple(str(name) for name in file.columns["classes"].reshape(-1))
