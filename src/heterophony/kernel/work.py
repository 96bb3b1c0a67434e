"""What a node may ask to be computed. A reaction yields work; the engine decides where and when it runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from heterophony.kernel.optimisers import Optimiser, sgd
from heterophony.kernel.privacy import PrivateSteps
from heterophony.kernel.statistics import running

if TYPE_CHECKING:
    from heterophony.base.noise import NoiseSource
    from heterophony.kernel.node import Node

# loss(models, batch) -> a tensor, or one per model, or named terms per model; the sum is minimised.
Loss = Callable[[Mapping[str, Callable[[Tensor], Tensor]], Any], Any]
# Tensors by name.
Named = Mapping[str, Tensor]
# transform(gradients, parameters, **aux) -> gradients. No data-dependent branches: it may run in a captured graph.
Transform = Callable[..., dict[str, Tensor]]

FORWARD_SHARE = 1 / 3  # a forward pass costs about a third of a training step


@dataclass(frozen=True)
class Fit:
    """Train models in place on a data view.

    All `models` step together from one loss. `teachers` are models that the loss may ask, in evaluation mode and
    without gradients. `parts` are sub-modules of either that it may ask too (what "model.body" gives are features).
    `only` names the sub-modules of the one model that are trained. Its other parameters are neither moved nor decayed.
    `transform` changes the gradient of the one model; with several models, it is given by name. It is called with
    `aux`. `extra` columns are joined to the rows (a teacher's logits, for example). `rows` restricts the view.
    The optimiser is fresh unless `keep` names a state: one for all models, or one for each.
    `refresh` helps after few steps: running statistics lag behind the weights by about ten steps. "always" takes them
    also where there is no step.
    `answer` asks for the first step's gradient, or for the displacement start - end, beside the mean loss terms.
    `own` gives those of its values that depend on the node and its round. The host asks it once, with `at`.
    """

    models: str | tuple[str, ...]
    loss: Loss
    data: str = "train"
    epochs: int = 1
    steps: int | None = None  # this many batches instead of whole epochs
    batch: int | None = None  # None: all rows at once
    drop_last: bool = False
    optimiser: Optimiser = field(default_factory=lambda: sgd(0.1))
    keep: str | Mapping[str, str] | None = None
    rows: Tensor | None = None
    extra: Named = field(default_factory=dict)
    teachers: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None  # None, or "": the whole
    transform: Transform | Mapping[str, Transform] | None = None
    aux: Mapping[str, Any] = field(default_factory=dict)
    answer: Literal["gradient", "displacement"] | None = None
    once: bool = False  # such work is not asked for again, so that nothing need be prepared for a next time
    refresh: bool | Literal["always"] = (
        False  # after the last step, BatchNorm's statistics are taken anew from the rows
    )
    own: Callable[[Node], Mapping[str, Any]] | None = None
    private: PrivateSteps | None = None  # steps that are private for each row
    source: NoiseSource | None = None  # where their noise comes from: the host says it

    def __post_init__(self) -> None:
        if callable(self.transform) and len(self.names) > 1:
            raise ValueError("several models: give their transforms by name, transform={'local': ...}")
        if self.only is not None and len(self.names) > 1:
            raise ValueError("several models: `only` names parts of one")
        if self.private is not None and (len(self.names) > 1 or self.teachers):
            raise ValueError("private steps are those of one model without teachers: leave `private` out")
        if self.epochs < 0 or (self.steps or 0) < 0 or (self.batch is not None and self.batch < 1):
            given = f"epochs = {self.epochs}, steps = {self.steps}, batch = {self.batch}"
            raise ValueError(f"a fit needs epochs and steps >= 0 and batch >= 1, or None for all rows, got {given}")

    def at(self, node: Node) -> Fit:
        """Return the order with the node's own values, as they are in this round."""
        return self if self.own is None else replace(self, own=None, **self.own(node))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the models that are trained, also where it is one."""
        return (self.models,) if isinstance(self.models, str) else self.models

    def trains(self, parameter: str) -> bool:
        """Return whether a parameter is among those that step."""
        if self.only is None:
            return True
        return any(not part or f"{parameter}.".startswith(f"{part}.") for part in self.only)

    def sizes(self, node: Node) -> list[int]:
        """Return the sizes of the batches that it will take, in order."""
        rows = len(node.data[self.data]) if self.rows is None else len(self.rows)
        return list(_sizes(rows, self.batch or max(rows, 1), self.drop_last, self.steps, self.epochs))

    def samples(self, node: Node) -> float:
        """Return how many samples' worth of training it is: what the virtual clock charges."""
        trained = float(sum(self.sizes(node)) * len(self.names))
        return trained + FORWARD_SHARE * self._refreshed(node)

    def refreshes(self, node: Node) -> bool:
        """Return whether running statistics are taken anew: after a step, or always."""
        return bool(self.refresh) and (self.refresh == "always" or bool(self.sizes(node)))

    def _refreshed(self, node: Node) -> int:
        """Return how many rows go through the models when statistics are taken anew."""
        if not self.refreshes(node):
            return 0
        rows = len(node.data[self.data]) if self.rows is None else len(self.rows)
        return rows * sum(bool(running(node.models[name])) for name in self.names)


@lru_cache(maxsize=1024)
def _sizes(rows: int, batch: int, drop_last: bool, steps: int | None, epochs: int) -> tuple[int, ...]:
    """Return the sizes of batches of a fit on so many rows. A cohort asks the same again and again."""
    epoch = [batch] * (rows // batch)
    rest = rows % batch
    if rest and not drop_last:
        epoch.append(rest)
    if steps is None or not epoch:
        return tuple(epoch * epochs)
    enough = steps // len(epoch) + 1  # epochs for all steps
    return tuple((epoch * enough)[:steps])


@dataclass(frozen=True)
class Fitted:
    """The answer to a `Fit`."""

    losses: Mapping[str, Mapping[str, float]]  # per model, the mean of each term over the steps
    steps: int
    gradient: dict[str, Tensor] | None = None
    displacement: dict[str, Tensor] | None = None


@dataclass(frozen=True)
class Predict:
    """What a model, or a part of it ("model.body"), gives for a data view, in evaluation mode and without gradients.

    In `training` mode, BatchNorm standardises by each batch and its running statistics move, and dropout acts.
    """

    model: str
    data: str
    rows: Tensor | None = None
    batch: int = 512
    training: bool = False

    def samples(self, node: Node) -> float:
        return FORWARD_SHARE * (len(node.data[self.data]) if self.rows is None else len(self.rows))


@dataclass(frozen=True)
class Mark:
    """The model is, at this moment, a product of the method ("local", "global", ...): evaluate it.

    The federation says in which rounds it is evaluated. A product that does not come again (`once`) always is.
    """

    product: str
    model: str = "model"
    once: bool = False

    def samples(self, node: Node) -> float:
        return 0.0  # an observer takes no virtual time


@dataclass(frozen=True)
class Note:
    """Write a number into the evaluation table: a gradient's norm, a cosine, a staleness."""

    quantity: str
    value: float
    n: int = 1

    def samples(self, node: Node) -> float:
        return 0.0


Work = Fit | Predict | Mark | Note
# What a reaction with work in it is to a type checker: yields work or early messages, returns messages.
Steps = Generator[Any, Any, Any]
