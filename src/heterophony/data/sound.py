"""What is wrong with data that somebody made in Python: one line that names the view and the column."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from heterophony.data.errors import DataError
from heterophony.data.table import Data


def check_kind(view: Any, where: str) -> None:
    """Raise where a view is no `Data`. `where` says which one, as "train of anna"."""
    if isinstance(view, Data):
        return
    kind = view.__name__ if isinstance(view, type) else type(view).__name__
    said = f"is the class {kind}" if isinstance(view, type) else f"is a {kind}"
    if hasattr(view, "__getitem__") and hasattr(view, "__len__") and not isinstance(view, tuple | list | dict):
        hint = "Data.of(dataset, classes=...) makes Data of a torch data set"
        if hasattr(view, "shape"):
            hint = "write Data(x=..., y=...) with tensors"
    else:
        hint = "write Data(x=..., y=...) with tensors"
    raise DataError(f"{where} {said}, not Data: {hint}")


def check_rows(data: Data, where: str, dtype: torch.dtype | None = None) -> None:
    """Raise where there are no rows, or `x` has a value that is no finite number.

    `dtype` is that of the networks' weights, and of numbers that they read.
    """
    if not len(data):
        raise DataError(f"{where} has no rows")
    x = data.columns.get("x")
    if x is None:
        raise DataError(f"{where} has no column x, which networks read; it has {', '.join(data.columns)}")
    if dtype is not None and x.is_floating_point() and x.dtype != dtype:
        kinds = f"{x.dtype}, networks read {dtype}".replace("torch.", "")
        raise DataError(f"{where}: x is {kinds}: write {'x.float()' if dtype == torch.float32 else f'x.to({dtype})'}")
    row = _not_finite(x)
    if row is not None:
        raise DataError(f"{where}: row {row} of x has a value that is no finite number (NaN or infinite)")


def check_targets(data: Data, where: str) -> None:
    """Raise where the targets `y` are missing, or not those of the task."""
    y = data.columns.get("y")
    if y is None:
        raise DataError(f"{where} has no column y, the targets; it has {', '.join(data.columns)}")
    wrong = data.task.misfit(y, tuple(data.columns["x"].shape))
    if wrong is None:
        return
    hint = ""
    if data.task.kind == "classification" and y.is_floating_point():
        hint = "; give y.long() if they are classes, or task=Regression() if they are numbers"
    raise DataError(f"{where}: y: {wrong}{hint}")


def _not_finite(x: Tensor) -> int | None:
    """Return the first row with a value that is no finite number; None: all are."""
    if not x.is_floating_point() or bool(torch.isfinite(x.sum())):  # which a single such value spoils
        return None
    rows = (~x.isfinite()).reshape(len(x), -1).any(1).nonzero()
    return int(rows[0]) if len(rows) else None
