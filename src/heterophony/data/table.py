"""Columns of equal length: the form in which every data set reaches a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from heterophony.data.augment import Augmentation


class Data:
    """Named tensors that share their first dimension, such as `Data(x=images, y=labels, classes=10)`.

    A batch is a `Data` too. `classes` is the size of the label space where there is one. `augment` (see `augmented`) is
    what training on these rows does to their images; predictions and evaluation leave them as they are.
    """

    __slots__ = ("augment", "classes", "columns", "copies")

    def __init__(self, *, classes: int | None = None, **columns: Tensor) -> None:
        lengths = {name: len(column) for name, column in columns.items()}
        if not columns or len(set(lengths.values())) != 1:
            raise ValueError(f"the columns of a data set must be of one length, got {lengths or 'none'}")
        self.columns = columns
        self.classes = classes
        self.augment: Augmentation | None = None
        self.copies: dict[str, Data] = {}

    @classmethod
    def of(cls, dataset: Sequence[tuple[Any, Any]] | Dataset[tuple[Any, Any]], classes: int | None = None) -> Data:
        """Columns `x` and `y` from a torch `Dataset`, or any sequence, of (input, label) pairs; read once, whole."""
        rows = [dataset[i] for i in range(len(dataset))]  # type: ignore[arg-type]
        if not rows:
            raise ValueError("the data set is empty")
        x = torch.stack([torch.as_tensor(x, dtype=torch.float32) for x, _ in rows])
        return cls(classes=classes, x=x, y=torch.as_tensor([int(y) for _, y in rows]))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("__") or name in self.__slots__:  # asked for while the object is being copied
            raise AttributeError(name)
        try:
            return self.columns[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}; there are {', '.join(self.columns)}") from None

    def take(self, rows: Tensor) -> Data:
        """The given rows, in the given order."""
        return self._like({n: c.index_select(0, rows) for n, c in self.columns.items()})

    def with_columns(self, **columns: Tensor) -> Data:
        """The same rows with further columns, such as a teacher's logits."""
        made = Data(classes=self.classes, **{**self.columns, **columns})
        made.augment = self.augment
        return made

    @property
    def device(self) -> torch.device:
        return next(iter(self.columns.values())).device

    def placed(self, device: str) -> Data:
        """The same on a device: copied once, however many participants share it."""
        if self.device.type == torch.device(device).type:
            return self
        if device not in self.copies:
            self.copies[device] = self.to(device)
        return self.copies[device]

    def to(self, device: torch.device | str) -> Data:
        return self._like({n: c.to(device) for n, c in self.columns.items()})

    def augmented(self, by: Augmentation | None) -> Data:
        """The same rows, whose images training changes at random."""
        made = self._like(self.columns)
        made.augment = by
        return made

    def _like(self, columns: dict[str, Tensor]) -> Data:
        made = Data.__new__(Data)  # of one length, as these are: a batch needs no check
        made.columns, made.classes, made.augment, made.copies = columns, self.classes, self.augment, {}
        return made
