"""Columns of equal length: the form in which every data set reaches a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from heterophony.data import rows
from heterophony.data.augment import Augmentation
from heterophony.data.errors import DataError
from heterophony.tasks.classification import Classification
from heterophony.tasks.task import Task

_BLOCK = 4096  # rows that become bytes at a time


class Data:
    """Named tensors that share their first dimension, such as `Data(x=images, y=labels, classes=10)`.

    A batch is a `Data` too. `task` says what the targets `y` are, and `classes=10` is short for
    `task=Classification(10)`. `augment` (see `augmented`) is what training on these rows does to their images;
    predictions and evaluation leave them as they are.
    On a GPU, images whose values are those of bytes are kept as bytes: `x` is what they stand for, to the bit.
    """

    __slots__ = ("augment", "columns", "copies", "levels", "task")

    def __init__(self, *, classes: int | None = None, task: Task | None = None, **columns: Tensor) -> None:
        if classes is not None and task is not None:
            raise ValueError("give either classes or a task")
        self._fill(columns, task or Classification(classes))

    def _fill(self, columns: dict[str, Tensor], task: Task) -> None:
        for name, column in columns.items():
            if not isinstance(column, Tensor):
                raise ValueError(f"column {name!r} is no tensor but {_kind(column)}")
        lengths = {name: len(column) for name, column in columns.items()}
        if not columns or len(set(lengths.values())) != 1:
            raise ValueError(f"the columns of a data set must be of one length, got {lengths or 'none'}")
        self.columns = columns
        self.task = task
        self.augment: Augmentation | None = None
        self.copies: dict[str, Data] = {}
        self.levels: Tensor | None = None  # where x is kept as bytes, what each of the 256 stands for

    @classmethod
    def of_columns(cls, columns: Mapping[str, Tensor], task: Task) -> Data:
        """Make data of columns by their names."""
        made = cls.__new__(cls)
        made._fill(dict(columns), task)
        return made

    @classmethod
    def of(cls, dataset: Sequence[tuple[Any, Any]] | Dataset[tuple[Any, Any]], classes: int | None = None) -> Data:
        """Make columns `x` and `y` of (input, label) pairs: a torch `Dataset`, or any sequence.

        All pairs are read at once. Inputs must be of one shape.
        """
        inputs, labels = [], []
        for number, row in enumerate(rows.each(dataset)):
            if not isinstance(row, tuple | list) or len(row) != 2:
                raise DataError(f"row {number}: it must be an (input, label) pair, got {type(row).__name__}")
            inputs.append(torch.as_tensor(row[0], dtype=torch.float32))
            rows.check_like(inputs[-1].shape, inputs[0].shape, f"row {number}: the input")
            labels.append(_label(row[1], number))
        return cls(classes=classes, x=torch.stack(inputs), y=torch.as_tensor(labels))

    @property
    def classes(self) -> int | None:
        """The size of the label space, where there is one."""
        return self.task.classes

    def __len__(self) -> int:
        return next(iter(self.columns.values())).size(0)

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("__") or name in self.__slots__:  # asked for while the object is being copied
            raise AttributeError(name)
        try:
            column = self.columns[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}; there are {', '.join(self.columns)}") from None
        return self.read(column) if name == "x" else column

    def read(self, part: Tensor) -> Tensor:
        """Return rows of the column x as what models read."""
        if self.levels is None:
            return part
        return self.levels.index_select(0, part.flatten().int()).view(part.shape)

    def take(self, rows: Tensor) -> Data:
        """Return the given rows, in the given order."""
        return self._like({n: c.index_select(0, rows) for n, c in self.columns.items()})

    def with_columns(self, **columns: Tensor) -> Data:
        """Return the same rows with further columns, such as a teacher's logits."""
        made = Data.of_columns({**self.columns, **columns}, self.task)
        made.augment = self.augment
        made.levels = None if "x" in columns else self.levels
        return made

    @property
    def device(self) -> torch.device:
        return next(iter(self.columns.values())).device

    def placed(self, device: str) -> Data:
        """Return the same on a device. It is copied once, however many participants share it."""
        if self.device.type == torch.device(device).type:
            return self
        if device not in self.copies:
            self.copies[device] = self.packed(device)
        return self.copies[device]

    def to(self, device: torch.device | str) -> Data:
        made = self._like({n: c.to(device) for n, c in self.columns.items()})
        made.levels = None if self.levels is None else self.levels.to(device)
        return made

    def packed(self, device: str) -> Data:
        """Return the same on a device, with images as bytes where that loses nothing: a quarter of the memory."""
        x = self.columns.get("x")
        found = None if x is None or self.levels is not None else _bytes(x, device)
        if found is None:
            return self.to(device)
        made = self._like({n: found if n == "x" else c.to(device) for n, c in self.columns.items()})
        made.levels = _levels().to(device)
        return made

    def augmented(self, by: Augmentation | None) -> Data:
        """Return the same rows, whose images training changes at random."""
        made = self._like(self.columns)
        made.augment = by
        return made

    def _like(self, columns: dict[str, Tensor]) -> Data:
        made = Data.__new__(Data)  # of one length, as these are: a batch needs no check
        made.columns, made.task, made.augment, made.copies = columns, self.task, self.augment, {}
        made.levels = self.levels
        return made


def _kind(column: Any) -> str:
    """Say what was given for a column, and how a tensor is made of it."""
    kind = type(column)
    if kind.__module__ == "numpy":
        return f"a numpy array ({column.dtype}): write torch.from_numpy(...), with .float() for numbers"
    return f"a {kind.__name__}: write torch.tensor(...)"


def _label(value: Any, number: int) -> int:
    """Return the label of one row as a whole number."""
    try:
        label = int(value)
    except (TypeError, ValueError):
        label = None
    if label is None or label != value:
        raise DataError(f"row {number}: the label {value!r} is no whole number")
    return label


@cache
def _levels() -> Tensor:
    """Return what `to_tensor` makes of each byte."""
    return (torch.arange(256).float() / 255 - 0.5) / 0.5


def _bytes(x: Tensor, device: str) -> Tensor | None:
    """Return the bytes that images were made of, on the device.

    None: they were made otherwise (turned, or standardised).
    """
    if x.dim() != 4 or x.dtype != torch.float32 or torch.device(device).type == "meta":
        return None
    if _whole(x[:1], _levels()) is None:  # which mostly tells, and asks no device
        return None
    levels = _levels().to(device)
    found = torch.empty(x.shape, dtype=torch.uint8, device=device)
    for at in range(0, len(x), _BLOCK):
        whole = _whole(x[at : at + _BLOCK].to(device), levels)
        if whole is None:
            return None
        found[at : at + _BLOCK] = whole
    return found


def _whole(x: Tensor, levels: Tensor) -> Tensor | None:
    """Return the bytes of these values; None: they are not such."""
    found = (x * 127.5 + 127.5).round().clamp(0, 255).nan_to_num()
    return found.to(torch.uint8) if torch.equal(levels[found.long()], x) else None
