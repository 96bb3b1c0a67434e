"""Which arrays of a user's own data are which: the keys that a layout names, and those that it leaves out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path

from heterophony.base.wording import listed
from heterophony.data.errors import DataError
from heterophony.data.sources import single
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.layout import ArrayLayout, Keys
from heterophony.data.sources.stored import opened


def filled(file: Columns, layout: ArrayLayout) -> ArrayLayout:
    """Return the layout with the keys of the training half, where they are not given."""
    y = layout.y or ("train_y" if "train_y" in file.columns and "y" not in file.columns else "y")
    if layout.x is not None:
        return replace(layout, y=y)
    if file.table:
        return replace(layout, x=_other_columns(file, layout, y), y=y)
    if file.path.suffix in single.SUFFIXES and file.path.name in file.columns:
        return replace(layout, x=file.path.name, y=y)
    return replace(layout, x="train_x" if "train_x" in file.columns and "x" not in file.columns else "x", y=y)


def check_x(file: Columns, keys: ArrayLayout) -> None:
    """Raise where what is to be learnt is among what networks read, or where they would read a column twice."""
    assert keys.y is not None
    names = names_of(file, keys.x or ())
    if both := [name for name in names if name in several(keys.y)]:
        raise DataError(f"{file.path}: {both[0]!r} is in x and in y, so networks would read what they are to learn")
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{file.path}: {twice[0]!r} is twice in x")


def _other_columns(file: Columns, layout: ArrayLayout, y: Keys) -> tuple[str, ...]:
    """Return the columns of a table that are x where nothing is said: all that are nothing else."""
    others = {*several(y), layout.group, layout.scale, layout.offset, *file.named}
    x = tuple(name for name in file.columns if name not in others)
    if not x:
        raise DataError(f"{file.path}: no column is left for x")
    known = all(name in file.columns for name in several(y))  # otherwise that is told
    if wrong := [name for name in x if known and _is_no_number(file.get(name))]:
        what = "holds no numbers" if len(wrong) == 1 else "hold no numbers"
        raise DataError(f"{file.path}: {listed(wrong)} {what}: name the columns of x in data.arrays.x")
    return x


def _is_no_number(column: Column) -> bool:
    """Return whether a column is none that networks can read: dates, or texts of which not one is a number."""
    if column.dtype.kind == "U":
        return any(word.strip() for word in column) and not any(map(single.is_number, column))
    return column.dtype.kind not in "biufO" or any(isinstance(value, str) for value in column.reshape(-1)[:100])


def of_test(file: Columns, layout: ArrayLayout, keys: ArrayLayout) -> tuple[Columns, ArrayLayout] | None:
    """Return the file and the keys of the test half; None: there is none."""
    if layout.test_file is not None:
        return _of_test_file(file, file.path.parent / layout.test_file, layout, keys)
    by_name = layout.x is None and keys.x == "train_x" and "test_x" in file.columns
    if layout.test_x is not None or by_name:
        x, y = layout.test_x or "test_x", layout.test_y or "test_y"
        return file, replace(keys, x=x, y=y, group=layout.test_group or None)
    if layout.test_y is not None or layout.test_group is not None:
        raise DataError(f"{file.path}: test_y and test_group go with test_x or test_file")
    return None


def _of_test_file(file: Columns, path: Path, layout: ArrayLayout, keys: ArrayLayout) -> tuple[Columns, ArrayLayout]:
    """Return the test half where it is a file of its own. Its keys are those of the training half unless set."""
    if not path.is_file():
        raise DataError(f"{file.path}: test_file: there is no file {path}")
    x = layout.test_x or keys.x
    if path.suffix in single.SUFFIXES and layout.test_x is None and keys.x == file.path.name:
        x = path.name  # a file of one array, whose key is its name
    return opened(path), replace(keys, x=x, y=layout.test_y or keys.y, group=layout.test_group or keys.group)


def several(keys: Keys) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else keys


def names_of(file: Columns, keys: Keys) -> list[str]:
    """Return the keys one by one. One with a star stands for all files that are called so, by name."""
    found: list[str] = []
    for key in several(keys):
        if "*" not in key or key in file.columns:
            found.append(key)
            continue
        files = sorted(glob(key, root_dir=file.folder))
        if not files or not key.endswith(single.SUFFIXES):
            raise DataError(f"{file.folder}: there is no file {key!r} ({' or '.join(single.SUFFIXES)})")
        found += files
    return found


def check_apart(file: Columns, train: Keys, test: Keys) -> None:
    """Raise where an array of the same file is trained and tested on, or where channels would change places."""
    first, second = names_of(file, train), names_of(file, test)
    if both := [name for name in second if name in first]:
        raise DataError(f"{file.path}: {both[0]!r} is in x and in test_x, so it would be trained on too")
    if not isinstance(train, str) or not isinstance(test, str) or "*" not in train or "*" not in test:
        return
    stand = _starred(train, first), _starred(test, second)
    if stand[0] != stand[1]:
        raise DataError(
            f"{file.folder}: the files of x stand for {listed(stand[0])}, those of test_x for {listed(stand[1])}: "
            "they must be the same"
        )


def _starred(key: str, names: Sequence[str]) -> list[str]:
    """Return what the stars of a key stand for in each of these names."""
    expression = re.compile("(.*)".join(map(re.escape, key.split("*"))))
    return ["*".join(match.groups()) for match in map(expression.fullmatch, names) if match]
