"""Losses as the papers write them. Each docstring says what is summed or averaged; no gradient reaches a teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data

Nets = Mapping[str, Callable[[Tensor], Tensor]]


def flat(logits: Tensor) -> Tensor:
    """Return outputs with one row for each prediction.

    Those of sequences, of shape (rows, classes, places), become (rows x places, classes).
    """
    if logits.ndim <= 2:
        return logits
    return logits.movedim(1, -1).flatten(0, -2)


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy with the labels: mean over rows, or over all places of all rows."""
    if logits.ndim > 2:  # flattened: torch's own form for sequences has no GPU kernel that repeats to the bit
        labels = labels.flatten()
    return F.cross_entropy(flat(logits), labels)


def cross_entropy(nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
    """Return the mean cross-entropy of each model with the labels."""
    return {name: {"ce": ce(net(batch.x), batch.y)} for name, net in nets.items()}


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


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    """Return KL(teacher || student) of logits: summed over classes, mean over the batch."""
    target = flat(teacher.detach()).log_softmax(-1)
    learnt = flat(student).log_softmax(-1)
    return (target.exp() * (target - learnt)).sum(-1).mean()


@dataclass(frozen=True)
class Mutual:
    """Cross-entropy with the labels, and KL from another model: FML's Eq. 5 for one's own model.

    KL counts with this `share`, cross-entropy with the rest. The column `parent` has the other model's logits.
    """

    share: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        def terms(logits: Tensor) -> dict[str, Tensor]:
            own = ce(logits, batch.y)
            return {"ce": (1 - self.share) * own, "kl": self.share * kl(batch.parent, logits)}

        return {name: terms(net(batch.x)) for name, net in nets.items()}
