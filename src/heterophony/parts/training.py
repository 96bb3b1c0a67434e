"""Local training as a part: how long, in which batches, with which optimiser, on which view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from heterophony.kernel.needs import Need, NoStream, PublicData, PublicLabels
from heterophony.kernel.optimisers import Optimiser, adam, sgd
from heterophony.kernel.work import Fit, Loss, Steps

if TYPE_CHECKING:
    from heterophony.kernel.node import Node

SEEN = "what is seen: private rows, those and the own domain's public ones, or those and all public ones"


@dataclass(frozen=True)
class Training:
    """How a participant trains on its own data between two messages: whole epochs, or so many `steps` (batches).

    `data` says which rows it may see: its private ones ("train"), these and the public ones of its own domain ("own"),
    or these and all public ones ("all").
    """

    epochs: Annotated[int, "over the data, between two messages"] = 1
    batch: Annotated[int | None, "rows of a step"] = 32
    lr: Annotated[float, "learning rate"] = 0.1
    momentum: Annotated[float, "of SGD"] = 0.0
    weight_decay: Annotated[float, "L2 penalty"] = 0.0
    optimiser: Annotated[Literal["sgd", "adam", "amsgrad"], "which steps; `lr` is in its units"] = "sgd"
    data: Annotated[Literal["train", "own", "all"], SEEN] = "train"
    steps: Annotated[int | None, "so many batches instead of whole epochs"] = None
    refresh: Annotated[bool, "BatchNorm's running statistics are taken anew from the rows after training"] = False
    initial: Annotated[int, "epochs before a participant's first round"] = 0

    def __post_init__(self) -> None:
        if self.epochs < 0 or (self.batch is not None and self.batch < 1):
            raise ValueError(f"training needs epochs >= 0 and batch >= 1, got {self.epochs} and {self.batch}")
        if self.initial < 0:
            raise ValueError(f"initial is a whole number >= 0, got {self.initial}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"training needs steps >= 1, or none for whole epochs, got {self.steps}")
        if not self.lr > 0 or not 0 <= self.momentum < 1 or not self.weight_decay >= 0:
            given = f"lr = {self.lr}, momentum = {self.momentum}, weight_decay = {self.weight_decay}"
            raise ValueError(f"training needs lr > 0, momentum in [0, 1) and weight_decay >= 0, got {given}")

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data. `name` is the method's option that holds it."""
        if self.data == "train":
            return []
        stream = NoStream("trains on public data too here", instead=f"{name}.data=train")
        if self.data == "own":
            return [stream, PublicData("trains on public data here")]
        return [stream, PublicLabels(instead=f"{name}.data=own")]

    def build(self) -> Optimiser:
        """Return the optimiser; equal trainings get the same object."""
        return _built(self)

    def examples(self, node: Node) -> int:
        """Return how many rows it trains on: those of the node's view."""
        return len(node.data[self.data])

    def fit(self, models: str | tuple[str, ...], loss: Loss, **more: Any) -> Fit:
        """Return the work order. What is given in `more` replaces or adds to what this training says."""
        order: dict[str, Any] = {
            "data": self.data,
            "epochs": self.epochs,
            "steps": self.steps,
            "batch": self.batch,
            "refresh": self.refresh,
            "optimiser": self.build(),
        }
        return Fit(models, loss, **{**order, **more})

    def before_first_round(self, node: Node, loss: Loss) -> Steps:
        """Train for `initial` epochs before a node's first round, as some papers do."""
        if self.initial and not node.epochs.get(self.data):
            yield self.fit("model", loss, steps=None, epochs=self.initial, once=True)


@lru_cache(maxsize=1024)
def _built(training: Training) -> Optimiser:
    """Return one optimiser for all orders of a kind, so that what depends on it is found out once."""
    if training.optimiser == "sgd":
        return sgd(training.lr, training.momentum, training.weight_decay)
    return adam(training.lr, training.weight_decay, amsgrad=training.optimiser == "amsgrad")
