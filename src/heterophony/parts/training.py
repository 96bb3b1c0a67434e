"""Local training as a part: how long, in which batches, with which optimiser, on which view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from heterophony.parts.optimisers import Optimiser, adam, sgd
from heterophony.work import Fit, Loss


@dataclass(frozen=True)
class Training:
    """What a participant does with its own data between two messages: whole epochs, or so many `steps` (batches).

    `data` is what it may see: its private rows ("train"), those and the public rows of its own domain ("own"), or
    those and all public rows ("all").
    """

    epochs: int = 1
    batch: int | None = 32
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimiser: Literal["sgd", "adam", "amsgrad"] = "sgd"
    data: Literal["train", "own", "all"] = "train"
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.epochs < 0 or (self.batch is not None and self.batch < 1):
            raise ValueError(f"training needs epochs >= 0 and batch >= 1, got {self.epochs} and {self.batch}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"training needs steps >= 1, or none for whole epochs, got {self.steps}")
        if not self.lr > 0 or not self.momentum >= 0 or not self.weight_decay >= 0:
            given = f"lr = {self.lr}, momentum = {self.momentum}, weight_decay = {self.weight_decay}"
            raise ValueError(f"training needs lr > 0, momentum >= 0 and weight_decay >= 0, got {given}")

    def build(self) -> Optimiser:
        if self.optimiser == "sgd":
            return sgd(self.lr, self.momentum, self.weight_decay)
        return adam(self.lr, self.weight_decay, amsgrad=self.optimiser == "amsgrad")

    def fit(self, models: str | tuple[str, ...], loss: Loss, **more: Any) -> Fit:
        """The work order."""
        order: dict[str, Any] = {"data": self.data, "epochs": self.epochs, "steps": self.steps, "batch": self.batch}
        return Fit(models, loss, **{**order, "optimiser": self.build(), **more})
