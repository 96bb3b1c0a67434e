"""Tables of a user's own: `.csv` and `.parquet` files, whose columns have names."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.files import reading
from heterophony.data.sources.single import is_number


def from_csv(path: Path) -> Columns:
    """Read a `.csv` file whose first line names the columns. All values are texts at first."""
    rows: list[list[str]] = []
    lines: list[int] = []
    with reading(path), path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        reader = csv.reader(_utf8(file), skipinitialspace=True)
        names = next(reader, [])
        _check_head(names)
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
    return Columns(path, columns, table=True, texts=True, where=lambda row: f"{path}: line {lines[row]}")


def _utf8(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text; raise where one holds bytes that are no UTF-8."""
    for number, line in enumerate(lines):
        if not line.isascii() and any("\udc80" <= letter <= "\udcff" for letter in line):
            raise DataError(f"line {number + 1} is not UTF-8: save the file as UTF-8")
        yield line


def _check_head(names: Sequence[str]) -> None:
    """Raise where the first line does not name columns."""
    if not any(names):
        raise DataError("the first line must name the columns")
    if len(names) == 1:
        for mark, said in ((";", "semicolons"), ("\t", "tabs")):
            if mark in names[0]:
                raise DataError(f"line 1: values are separated by {said}: save it with commas, and points in numbers")
    for name in names:
        if "." in name and is_number(name):
            raise DataError(f"line 1: {name} is a number: the first line must name the columns")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"line 1: two columns are called {twice[0]!r}")


def from_parquet(path: Path) -> Columns:
    """Read a `.parquet` file with pyarrow, or else with pandas and what it reads such files with."""
    frame: Any
    try:
        read_table = importlib.import_module("pyarrow.parquet").read_table
    except ImportError:
        frame = _frame(path)
        return Columns(path, {str(name): plain(frame[name].to_numpy()) for name in frame.columns}, table=True)
    with reading(path):
        table = read_table(path)
        columns = {name: plain(table.column(name).to_numpy()) for name in table.column_names}
    return Columns(path, columns, table=True)


def plain(column: Column) -> Column:
    """Return a column of Python texts as an array of texts, and one of lists of one length as an array of numbers."""
    if column.dtype.kind != "O" or not len(column):
        return column
    if all(isinstance(value, str) for value in column):
        return column.astype(str)
    if all(isinstance(value, np.ndarray) and value.dtype.kind in "biuf" for value in column):
        alike = {value.shape for value in column}
        return np.stack(list(column)) if len(alike) == 1 else column
    return column  # which whoever asks for it refuses


def _frame(path: Path) -> Any:
    try:
        pandas = importlib.import_module("pandas")
        importlib.import_module("fastparquet")  # what pandas reads such files with where there is no pyarrow
    except ImportError:
        raise DataError(f"{path}: reading .parquet files needs pyarrow: pip install 'heterophony[parquet]'") from None
    with reading(path):
        return pandas.read_parquet(path)
