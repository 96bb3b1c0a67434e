"""Losses as the papers write them. Each docstring says what is summed or averaged; no gradient reaches a teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from heterophony.data.table import Data
from heterophony.tasks.classification import ce as ce
from heterophony.tasks.classification import flat as flat
from heterophony.tasks.classification import kl as kl

Nets = Mapping[str, Callable[[Tensor], Tensor]]


def task_loss(nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
    """Return the loss of each model on the batch's task: cross-entropy with labels, errors of numbers, ..."""
    return {name: {batch.task.term: batch.task.loss(net(batch.x), batch.y)} for name, net in nets.items()}


def cross_entropy(nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
    """Return the mean cross-entropy of each model with the labels."""
    return {name: {"ce": ce(net(batch.x), batch.y)} for name, net in nets.items()}


def soft_label_loss(nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
    """Return the cross-entropy of each model with the soft label of each row, which is the column "labels"."""
    return {name: {"kd": soft_ce(batch.labels, net(batch.x))} for name, net in nets.items()}


def distance(
    target: Tensor,
    logits: Tensor,
    kind: Literal["l1", "l2", "ce"] = "l1",
    over: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Return how far logits are from a constant target: mean over rows.

    Args:
        target: the logits to compare with.
        logits: those of the model that learns.
        kind: absolute differences ("l1"), squared ones ("l2"), or cross-entropy with the target's softmax ("ce").
        over: what is done over a row's outputs: their mean or their sum. Cross-entropy is always a sum.
    """
    if kind == "ce":
        return soft_cross_entropy(target, logits)
    apart = logits - target.detach()
    each = apart.abs() if kind == "l1" else apart.pow(2)
    return each.mean() if over == "mean" else each.sum() / len(flat(each))


def soft_cross_entropy(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the cross-entropy with a teacher's softened prediction: summed over classes, mean over rows."""
    return soft_ce((flat(teacher) / temperature).softmax(-1), flat(student) / temperature)


def soft_ce(target: Tensor, logits: Tensor) -> Tensor:
    """Return the cross-entropy with these probabilities: summed over classes, mean over rows."""
    return -(target.detach() * logits.log_softmax(-1)).sum(-1).mean()


@dataclass(frozen=True)
class Mutual:
    """The task's loss, and the distance from another model: FML's Eq. 5 for one's own model.

    The distance, KL of classes, counts with this `share`, the loss with the rest. The column `parent` has the other
    model's outputs.
    """

    share: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        task = batch.task

        def terms(outputs: Tensor) -> dict[str, Tensor]:
            own = task.loss(outputs, batch.y)
            return {task.term: (1 - self.share) * own, "kl": self.share * task.distance(batch.parent, outputs)}

        return {name: terms(net(batch.x)) for name, net in nets.items()}
