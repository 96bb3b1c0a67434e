"""Rows of a data set that is asked for them one by one, put together as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from heterophony.data.errors import DataError

Column = npt.NDArray[Any]
NAMES = ("x", "y", "group")  # of the values of a row without names


def is_dataset(value: object) -> bool:
    """Return whether this is a torch data set, or a loader of one."""
    return isinstance(value, Dataset | DataLoader)


def columns(dataset: Any, said: str = "") -> dict[str, Column]:
    """Return all rows as columns: of (x, y) pairs, (x, y, group) triples, or dictionaries. `said` begins errors."""
    made: dict[str, list[Column]] = {}
    for number, row in enumerate(each(dataset, said)):
        named = _named(row, f"{said}row {number}")
        if made and set(named) != set(made):
            raise DataError(f"{said}row {number}: it has {', '.join(named)}, the first row has {', '.join(made)}")
        for name, value in named.items():
            column = made.setdefault(name, [])
            column.append(_array(value, f"{said}row {number}: {name}"))
            check_like(column[-1].shape, column[0].shape, f"{said}row {number}: {name}")
    return {name: np.stack(values) for name, values in made.items()}


def each(dataset: Any, said: str = "") -> Iterator[Any]:
    """Yield the rows of a data set that knows how many it has. What goes wrong is said with the row."""
    if isinstance(dataset, DataLoader):
        raise DataError(f"{said}a DataLoader gives batches: give the data set itself, its `dataset`")
    iterable = isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
    if iterable or not hasattr(dataset, "__len__"):
        kind = type(dataset).__name__
        raise DataError(f"{said}{kind} cannot be asked for a row by its number: give a data set with len() and [row]")
    if not len(dataset):
        raise DataError(f"{said}the data set is empty")
    for number in range(len(dataset)):
        try:
            row = dataset[number]
        except Exception as error:  # whatever the user's data set does
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise DataError(f"{said}row {number}: the data set raised {reason}") from error
        yield row


def check_like(shape: tuple[int, ...], first: tuple[int, ...], said: str) -> None:
    """Raise where a row has another shape than the first."""
    if shape != first:
        raise DataError(f"{said} has the shape {tuple(shape)}, that of the first row is {tuple(first)}")


def _named(row: Any, said: str) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {str(name): value for name, value in row.items()}
    if isinstance(row, tuple | list) and len(row) in (2, 3):
        return dict(zip(NAMES, row, strict=False))
    raise DataError(f"{said}: a row is (x, y), (x, y, group) or a dictionary, got {_kind(row)}")


def _kind(row: Any) -> str:
    return f"{len(row)} values" if isinstance(row, tuple | list) else type(row).__name__


def _array(value: Any, said: str) -> Column:
    try:
        found = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise DataError(f"{said} is no array ({' '.join(str(error).split())})") from None
    if found.dtype.kind == "O":
        raise DataError(f"{said} is a {type(value).__name__}, not numbers or a text")
    return found
