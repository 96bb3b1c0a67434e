"""Named columns of a user's own file: arrays of `.npz` and `.npy` files, columns of `.csv` and `.parquet` files."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heterophony.base.wording import listed, meant
from heterophony.data.errors import DataError
from heterophony.data.sources import npz
from heterophony.data.sources.files import reading

Column = npt.NDArray[Any]
TABLES = (".csv", ".parquet")
SUFFIXES = (".npz", ".npy", *TABLES)


@dataclass(frozen=True)
class Columns:
    """The columns of one file by name. Of a `.csv` file, `lines` says where in the file each row is."""

    path: Path
    columns: Mapping[str, Column]
    lines: tuple[int, ...] = ()

    @property
    def table(self) -> bool:
        """Return whether the file has rows and columns, of which several make one row of `x`."""
        return self.path.suffix in TABLES

    def get(self, key: str) -> Column:
        """Return a column. A key that ends with `.npy` names a file beside this one."""
        if key in self.columns:
            return self.columns[key]
        if key.endswith(".npy"):
            return _npy(self.path.parent / key)
        what = "column" if self.table else "array"
        known = listed(list(self.columns)) or "nothing"
        raise DataError(f"{self.path}: there is no {what} {key!r}{meant(key, self.columns)}; there are {known}")

    def at(self, key: str, row: int) -> str:
        """Say where a value is."""
        place = f"line {self.lines[row]}" if self.lines else f"row {row}"
        return f"{self.path}: {place}, {'column' if self.table else 'array'} {key!r}"

    def numbers(self, key: str) -> Column:
        """Return a column of numbers. The words of a `.csv` file are read as numbers."""
        column = self.get(key)
        if column.dtype.kind in "biuf":
            return column
        if column.dtype.kind == "U" and self.table:
            return self._parsed(key, column)
        raise DataError(f"{self.path}: {key!r} holds {_said(column)}, not numbers")

    def _parsed(self, key: str, column: Column) -> Column:
        try:
            return column.astype(np.float64)
        except ValueError:
            row = next(row for row, word in enumerate(column) if not is_number(word))
        word = str(column[row])
        raise DataError(f"{self.at(key, row)}: {f'{word!r} is no number' if word.strip() else 'there is no value'}")


def is_number(word: str) -> bool:
    """Return whether a word is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def opened(path: Path) -> Columns:
    """Read the columns of a file. Nothing is ever unpickled."""
    if path.suffix == ".csv":
        return _csv(path)
    if path.suffix == ".parquet":
        return Columns(path, _parquet(path))
    if path.suffix == ".npy":
        return Columns(path, {path.name: _npy(path)})
    with npz.opened(path) as arrays:
        return Columns(path, {str(name): arrays[name] for name in arrays})


def _npy(path: Path) -> Column:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with reading(path):
        try:
            found = np.load(path, allow_pickle=False)
        except ValueError as error:
            if "pickle" not in str(error) and "Object arrays" not in str(error):
                raise
            raise DataError("it holds Python objects, or is no .npy file: write numbers with numpy.save") from None
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} is no .npy file: write it with numpy.save")
    return found


def _csv(path: Path) -> Columns:
    """Read a `.csv` file whose first line names the columns. All values are texts at first."""
    rows: list[list[str]] = []
    lines: list[int] = []
    with reading(path), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        names = next(reader, [])
        if not any(names):
            raise DataError("the first line must name the columns")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(f"line 1: two columns are called {twice[0]!r}")
        for row in reader:
            if not row:  # an empty line
                continue
            if len(row) != len(names):
                raise DataError(f"line {reader.line_num}: there are {len(row)} values for {len(names)} columns")
            rows.append(row)
            lines.append(reader.line_num)
    if not rows:
        raise DataError(f"{path}: there are no rows below the names of the columns")
    columns = {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    return Columns(path, columns, tuple(lines))


def _parquet(path: Path) -> dict[str, Column]:
    """Read a `.parquet` file with pyarrow, or else with pandas and what it reads such files with."""
    frame: Any
    try:
        read_table = importlib.import_module("pyarrow.parquet").read_table
    except ImportError:
        frame = _frame(path)
        return {str(name): _plain(frame[name].to_numpy()) for name in frame.columns}
    with reading(path):
        table = read_table(path)
        return {name: _plain(table.column(name).to_numpy()) for name in table.column_names}


def _frame(path: Path) -> Any:
    try:
        pandas = importlib.import_module("pandas")
        importlib.import_module("fastparquet")  # what pandas reads such files with where there is no pyarrow
    except ImportError:
        raise DataError(f"{path}: reading .parquet files needs pyarrow: pip install 'heterophony[parquet]'") from None
    with reading(path):
        return pandas.read_parquet(path)


def _plain(column: Column) -> Column:
    """Return a column of Python texts as an array of texts."""
    if column.dtype.kind != "O":
        return column
    if not all(isinstance(value, str) for value in column):
        return column  # which whoever asks for it refuses
    return column.astype(str)


def _said(column: Column) -> str:
    """Say what kind of values a column has."""
    kinds = {"U": "texts", "S": "bytes", "O": "Python objects", "c": "complex numbers", "M": "dates", "m": "durations"}
    return kinds.get(column.dtype.kind, str(column.dtype))
