"""Folders of arrays: files that a pattern such as `{user}/{activity}_*.npy` names, put together as one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources import single
from heterophony.data.sources.columns import Column, Columns, Lazy
from heterophony.data.sources.files import reading
from heterophony.data.sources.stored import SUFFIXES, opened

Found = list[tuple[Path, dict[str, str]]]


def folder(place: Path, pattern: str, one_row: bool, key: Callable[[Columns], str]) -> Columns:
    """Put together the files that a pattern names. `one_row`: each of them is one row of the whole.

    What stands in braces in the pattern becomes a column of that name. `key` says which column of a file tells how many
    rows it has.
    """
    found = matching(place, pattern)
    parts = [part_of(path, one_row) for path, _ in found]
    lengths = [len(part.get(key(part))) for part in parts]
    for part, length in zip(parts, lengths, strict=True):
        if not length:
            raise DataError(f"{part.path}: {key(part)!r} has no rows")
    starts = tuple(int(start) for start in np.cumsum([0, *lengths[:-1]]))
    first, words = parts[0], {name: [named[name] for _, named in found] for name in found[0][1]}
    if both := sorted(set(words) & set(first.columns)):
        raise DataError(f"{first.path}: there is a column {both[0]!r}, which data.arrays.files names too")

    def read(name: str) -> Column:
        return np.repeat(np.array(words[name]), lengths) if name in words else _together(parts, name, lengths)

    def where(row: int) -> str:
        place = bisect_right(starts, row) - 1
        own = parts[place].where
        if one_row:
            return str(parts[place].path)
        return own(row - starts[place]) if own else f"{parts[place].path}: row {row - starts[place]}"

    columns = Lazy((*first.columns, *words), read)
    return Columns(place, columns, first.table, first.texts, where, starts, tuple(words), first.class_names)


def matching(place: Path, pattern: str) -> Found:
    """Return the files that a pattern names, by name, each with what stands in the place of the braces."""
    if not pattern.endswith(SUFFIXES):
        raise DataError(f"{place}: data.arrays.files must end with one of {', '.join(SUFFIXES)}, got {pattern!r}")
    names = re.findall(r"{(\w+)}", pattern)
    if len(set(names)) < len(names) or re.search(r"[{}]", re.sub(r"{[A-Za-z_]\w*}", "", pattern)):
        raise DataError(f"{place}: data.arrays.files: {pattern!r} must have one name between braces, each once")
    wanted = re.compile(_expression(pattern))
    found: Found = []
    for path in sorted(place.rglob("*")):
        inside = path.relative_to(place)
        match = wanted.fullmatch(inside.as_posix())
        if match and path.is_file() and not any(part.startswith(".") for part in inside.parts):
            found.append((path, match.groupdict()))
    if not found:
        raise DataError(f"{place}: no file is called as data.arrays.files says, {pattern!r}")
    return found


def _expression(pattern: str) -> str:
    """Return a pattern as a regular expression. Braces and stars stand for no `/`."""
    pieces = re.split(r"({\w+}|\*)", pattern)
    return "".join(
        f"(?P<{piece[1:-1]}>[^/]+)" if piece[:1] == "{" else "[^/]*" if piece == "*" else re.escape(piece)
        for piece in pieces
    )


def part_of(path: Path, one_row: bool) -> Columns:
    """Open one file. The array of a file that holds one is called x, whatever the file is called."""
    part = opened(path)
    columns = {"x" if path.suffix in single.SUFFIXES else name: column for name, column in part.columns.items()}
    if one_row:
        columns = {name: column[None] for name, column in columns.items()}
    return replace(part, columns=columns)


def _together(parts: list[Columns], name: str, lengths: list[int]) -> Column:
    """Return the rows of all files, one after the other. They must be alike."""
    columns = [part.get(name) for part in parts]
    for part, column, length in zip(parts, columns, lengths, strict=True):
        with reading(part.path):
            if column.shape[:1] != (length,):
                raise DataError(f"{name!r} has the shape {column.shape}, the file has {length} rows")
            if column.shape[1:] != columns[0].shape[1:]:
                shapes = f"{column.shape[1:]}, those of {parts[0].path} are {columns[0].shape[1:]}"
                raise DataError(f"rows of {name!r} are {shapes}: all must be alike")
            if column.dtype != columns[0].dtype and (column.dtype.kind != "U" or columns[0].dtype.kind != "U"):
                raise DataError(f"{name!r} is {column.dtype}, in {parts[0].path} it is {columns[0].dtype}")
    return np.concatenate(columns)
