"""Local training as a part: how long, in which batches, with which optimiser, on which view."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from heterophony.kernel.by_level import ByLevel, values
from heterophony.kernel.needs import Need, NoStream, PublicData, PublicLabels
from heterophony.kernel.optimisers import Optimiser, adam, adamw, sgd
from heterophony.kernel.privacy import PrivateSteps
from heterophony.kernel.work import Fit, Loss, Steps
from heterophony.parts import schedules
from heterophony.parts.own_value import own_value
from heterophony.parts.schedules import Scheduled

if TYPE_CHECKING:
    from torch import Tensor

    from heterophony.kernel.node import Node

SEEN = "what is seen: private rows, those and the own domain's public ones, or those and all public ones"
PRIVATE = "`{ clip, noise }`: each row's gradient is clipped and noise is added (DP-SGD); none: as they are"
CLIP = "the longest gradient that a network steps by; a longer one is shortened to it; none: any"


@dataclass(frozen=True)
class Training:
    """How a participant trains on its own data between two messages: whole epochs, or so many `steps` (batches).

    `data` says which rows it may see: its private ones ("train"), these and the public ones of its own domain ("own"),
    or these and all public ones ("all"). `epochs`, `batch`, `lr` and `steps` may differ from node to node, and `lr` may
    change with a node's rounds.
    """

    epochs: Annotated[ByLevel[int], "over the data, between two messages"] = 1
    batch: Annotated[ByLevel[int] | None, "rows of a step"] = 32
    lr: Annotated[ByLevel[Scheduled], "learning rate"] = 0.1
    momentum: Annotated[float, "of SGD"] = 0.0
    nesterov: Annotated[bool, "the momentum of SGD looks one step ahead"] = False
    weight_decay: Annotated[float, "L2 penalty; of `adamw`, the share of a weight that a step of rate one takes"] = 0.0
    optimiser: Annotated[Literal["sgd", "adam", "amsgrad", "adamw"], "which steps; `lr` is in its units"] = "sgd"
    clip: Annotated[float | None, CLIP] = None
    data: Annotated[Literal["train", "own", "all"], SEEN] = "train"
    steps: Annotated[ByLevel[int] | None, "so many batches instead of whole epochs"] = None
    refresh: Annotated[bool, "BatchNorm's running statistics are taken anew from the rows after training"] = False
    initial: Annotated[int, "epochs before a participant's first round"] = 0
    private: Annotated[PrivateSteps | None, PRIVATE] = None
    keep: Annotated[bool, "the optimiser's moments are kept from one round to the next; no: it begins anew"] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", schedules.read_by_node(self.lr))
        if self.initial < 0:
            raise ValueError(f"initial is a whole number >= 0, got {self.initial}")
        batches: list[Any] = [] if self.batch is None else values(self.batch)
        if not all(epochs >= 0 for epochs in values(self.epochs)) or not all(batch >= 1 for batch in batches):
            raise ValueError(f"training needs epochs >= 0 and batch >= 1, got {self.epochs} and {self.batch}")
        for steps in [] if self.steps is None else values(self.steps):
            if steps < 1:
                raise ValueError(f"training needs steps >= 1, or none for whole epochs, got {steps}")
        self._check_optimiser()

    def _check_optimiser(self) -> None:
        """Raise where the optimiser cannot be made."""
        rates: list[Any] = values(self.lr)
        for lr in rates:
            if not _sound(lr) or not 0 <= self.momentum < 1 or not self.weight_decay >= 0:
                given = f"lr = {lr}, momentum = {self.momentum}, weight_decay = {self.weight_decay}"
                raise ValueError(f"training needs lr > 0, momentum in [0, 1) and weight_decay >= 0, got {given}")
        if self.nesterov and (self.optimiser != "sgd" or not self.momentum):
            given = f"optimiser = {self.optimiser} and momentum = {self.momentum}"
            raise ValueError(f"nesterov needs the optimiser sgd and momentum > 0, got {given}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is a length > 0, or none for any, got {self.clip}")

    def reads(self, name: str) -> Mapping[str, str]:
        """Return the view that local training reads. A method says itself what its other trainings read."""
        return {self.data: f"local.data = {self.data!r}"} if name == "local" else {}

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data. `name` is the method's option that holds it."""
        if self.data == "train":
            return []
        stream = NoStream("trains on public data too here", instead=f"{name}.data=train")
        if self.data == "own":
            return [stream, PublicData("trains on public data here")]
        return [stream, PublicLabels(instead=f"{name}.data=own")]

    # -- what differs from node to node and from round to round ----------------------------------------------------
    @cached_property
    def varies(self) -> bool:
        """Return whether something of it depends on the node or its round."""
        return self.changing or any(isinstance(getattr(self, name), dict) for name in Numbers._fields)

    @cached_property
    def changing(self) -> bool:
        """Return whether a rate is another one from round to round."""
        return any(isinstance(lr, schedules.Schedule) for lr in values(self.lr))

    def at(self, node: Node) -> Numbers:
        """Return a node's own numbers in its present round."""
        own: dict[str, Any] = {name: own_value(getattr(self, name), node) for name in Numbers._fields}
        for name in ("epochs", "batch", "lr"):
            if own[name] is None and getattr(self, name) is not None:
                raise ValueError(f"{name} has no value for {node.id}: give one, or one for '*'")
        return Numbers(**{**own, "lr": schedules.at(own["lr"], node.round)})

    # -- work ------------------------------------------------------------------------------------------------------
    def build(self) -> Optimiser:
        """Return the optimiser; equal trainings get the same object."""
        return self._optimiser

    def built_at(self, node: Node) -> Optimiser:
        """Return a node's optimiser in its present round."""
        return self._built(self.at(node).lr)

    @cached_property
    def _optimiser(self) -> Optimiser:
        """Return the optimiser of every node and round, found out once: each work order asks for it."""
        if self.varies:
            raise ValueError("this training depends on the node and its round: ask for `built_at(node)`")
        rate: Any = self.lr
        return self._built(rate)

    def _built(self, lr: float) -> Optimiser:
        return _built(self.optimiser, lr, self.momentum, self.nesterov, self.weight_decay, self.clip, self.changing)

    def examples(self, node: Node) -> int:
        """Return how many rows it trains on: those of the node's view."""
        return len(node.data[self.data])

    def fit(self, models: str | tuple[str, ...], loss: Loss, **more: Any) -> Fit:
        """Return the work order. What is given in `more` replaces or adds to what this training says.

        What depends on the node and its round is put in where the order is taken.
        """
        plain = more.keys() <= {"transform", "aux"} and more.get("transform") is None and not more.get("aux")
        if not plain or not isinstance(loss, FunctionType):
            return self._order(models, loss, more)
        key = models, loss
        if key not in self._orders:
            self._orders[key] = self._order(models, loss, {})
        return self._orders[key]

    @cached_property
    def _orders(self) -> dict[tuple[str | tuple[str, ...], Loss], Fit]:
        """Return the plain orders, by models and loss. One object serves all nodes and rounds."""
        return {}

    def _order(self, models: str | tuple[str, ...], loss: Loss, more: Mapping[str, Any]) -> Fit:
        order: dict[str, Any] = {"data": self.data, "refresh": self.refresh, "private": self.private}
        if self.keep:
            order["keep"] = "local"
        if self.varies:
            order["own"] = OwnNumbers(self, frozenset(more))
        else:
            order |= {"epochs": self.epochs, "steps": self.steps, "batch": self.batch, "optimiser": self.build()}
        return Fit(models, loss, **{**order, **more})

    def on_public(self, loss: Loss) -> Fit:
        """Return the work order of a server that trains its model in the same way on public rows."""
        return self.fit("model", loss, data="public", private=None)

    def batches(self, node: Node) -> Iterator[Tensor]:
        """Yield the row numbers of each batch of a round, for a method that does more with one than take a step."""
        epochs, steps, batch, _ = self.at(node)
        sizes = Fit((), _nothing, self.data, epochs, steps, batch).sizes(node)
        rows = self.examples(node)
        while sizes:
            order = node.order(self.data, rows)
            at = 0
            while sizes and at + sizes[0] <= rows:
                size = sizes.pop(0)
                yield order[at : at + size]
                at += size

    def reach(self, steps: int) -> float:
        """Return how far a constant gradient goes in so many steps of SGD, in units of the rate.

        Without momentum it is their number. With a momentum of m it is the sum of (1 - m^k) / (1 - m) over all steps k.
        Nesterov's momentum is that of one step later.
        """
        m, ahead = self.momentum, int(self.nesterov)
        return sum((1 - m ** (k + ahead)) / (1 - m) for k in range(1, steps + 1))

    def before_first_round(self, node: Node, loss: Loss, **more: Any) -> Steps:
        """Train for `initial` epochs before a node's first round, as some papers do."""
        if self.initial and not node.epochs.get(self.data):
            yield self.fit("model", loss, steps=None, epochs=self.initial, once=True, **more)


def _nothing(*_: object) -> None:
    """Stand for the loss of an order of which only the batches are asked for."""


class Numbers(NamedTuple):
    """What of a training may vary, for one node in one round."""

    epochs: int
    steps: int | None
    batch: int | None
    lr: float


@dataclass(frozen=True)
class OwnNumbers:
    """What a training gives to a node's work order, in its present round, beside what is `fixed`."""

    training: Training
    fixed: frozenset[str]

    def __call__(self, node: Node) -> dict[str, Any]:
        epochs, steps, batch, _ = self.training.at(node)
        order = {"epochs": epochs, "steps": steps, "batch": batch, "optimiser": self.training.built_at(node)}
        return {name: value for name, value in order.items() if name not in self.fixed}


def _sound(lr: Scheduled) -> bool:
    """Return whether a rate is above 0, and one that changes at least in the beginning."""
    if not isinstance(lr, schedules.Schedule):
        return lr > 0
    return schedules.at(lr, 0) > 0 and all(0 <= end < math.inf for end in schedules.ends(lr))


@lru_cache(maxsize=1024)
def _built(
    name: str, lr: float, momentum: float, nesterov: bool, decay: float, clip: float | None, changing: bool
) -> Optimiser:
    """Return one optimiser for all orders of a kind, so that what depends on it is found out once."""
    if name == "sgd":
        made = sgd(lr, momentum, decay, nesterov)
    elif name == "adamw":
        made = adamw(lr, decay)
    else:
        made = adam(lr, decay, amsgrad=name == "amsgrad")
    return replace(made, clip=clip, changing=changing)
