"""Named columns of a user's own data: arrays of a file, columns of a table, or those of all files of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heterophony.base.wording import listed, meant
from heterophony.data.errors import DataError
from heterophony.data.sources import single

Column = npt.NDArray[Any]


class Lazy(Mapping[str, Column]):
    """Columns that are read when they are asked for, each once."""

    def __init__(self, names: tuple[str, ...], read: Callable[[str], Column]) -> None:
        self.names = names
        self.read = read
        self.held: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self.names:
            raise KeyError(name)
        if name not in self.held:
            self.held[name] = self.read(name)
        return self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Columns:
    """The columns of one file or folder by name."""

    path: Path
    columns: Mapping[str, Column]
    # Whether several columns make one row of `x`, beside each other.
    table: bool = False
    # Whether numbers are written as texts, which have no type of their own.
    texts: bool = False
    # Says where a row is, where that is more than its number: `patients.csv: line 14`.
    where: Callable[[int], str] | None = None
    # The first row of each file.
    starts: tuple[int, ...] = (0,)
    # Columns that are made of the files' own names, which are no part of x unless it names them.
    named: tuple[str, ...] = ()
    # By column, what its numbers stand for, where that is stored with them.
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return where files lie that keys name."""
        return self.path if self.path.is_dir() else self.path.parent

    def get(self, key: str) -> Column:
        """Return a column. A key that ends with `.npy` or `.txt` names a file beside this one."""
        if key in self.columns:
            return self.columns[key]
        if key.endswith(single.SUFFIXES):
            return single.array(self.folder / key)
        what = "column" if self.table else "array"
        known = f"there are {listed(list(self.columns))}" if self.columns else "there are none at all"
        raise DataError(f"{self.path}: there is no {what} {key!r}{meant(key, self.columns)}; {known}")

    def at(self, key: str, row: int) -> str:
        """Say where a value is."""
        place = self.where(row) if self.where else f"{self.path}: row {row}"
        return f"{place}, {'column' if self.table else 'array'} {key!r}"

    def numbers(self, key: str) -> Column:
        """Return a column of numbers. The words of a `.csv` file are read as numbers."""
        column = self.get(key)
        if column.dtype.kind in "biuf":
            return column
        if column.dtype.kind == "U" and self.table:
            return self._parsed(key, column)
        raise DataError(self._ragged(key, column) or f"{self.path}: {key!r} holds {_said(column)}, not numbers")

    def _parsed(self, key: str, column: Column) -> Column:
        try:
            return column.astype(np.float64)
        except ValueError:
            row, word = next(
                (place[0], str(word)) for place, word in np.ndenumerate(column) if not single.is_number(word)
            )
        raise DataError(f"{self.at(key, row)}: {f'{word!r} is no number' if word.strip() else 'there is no value'}")

    def _ragged(self, key: str, column: Column) -> str:
        """Say which row of a column of lists is the first of another length."""
        shapes = [np.shape(value) for value in column] if column.dtype.kind == "O" else []
        row = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
        if row is None:
            return ""
        return f"{self.at(key, row)} has the shape {shapes[row]}, the first row has {shapes[0]}: they must be alike"


def _said(column: Column) -> str:
    """Say what kind of values a column has."""
    kinds = {"U": "texts", "S": "bytes", "O": "Python objects", "c": "complex numbers", "M": "dates", "m": "durations"}
    return kinds.get(column.dtype.kind, str(column.dtype))
