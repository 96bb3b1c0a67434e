"""Losses as the papers write them. Reductions are spelled out, teachers are constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data

Nets = Mapping[str, Callable[[Tensor], Tensor]]


def flat(logits: Tensor) -> Tensor:
    """Outputs with one row a prediction: those of sequences, (rows, classes, places), as (rows x places, classes)."""
    return logits if logits.ndim <= 2 else logits.movedim(1, -1).flatten(0, -2)


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over rows, or over all places of all rows.

    Flattened, as torch's own form for sequences has no kernel for GPUs that repeats to the bit.
    """
    return F.cross_entropy(flat(logits), labels if logits.ndim <= 2 else labels.flatten())


def cross_entropy(nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
    """Mean cross-entropy of each model with the labels."""
    return {name: {"ce": ce(net(batch.x), batch.y)} for name, net in nets.items()}


def distance(
    target: Tensor,
    logits: Tensor,
    kind: Literal["l1", "l2", "ce"] = "l1",
    over: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """How far logits are from a constant target, mean over rows.

    Over a row's outputs, absolute (l1) or squared (l2) differences are averaged or summed, and soft cross-entropy is
    summed.
    """
    if kind == "ce":
        return soft_cross_entropy(target, logits)
    apart = logits - target.detach()
    each = apart.abs() if kind == "l1" else apart.pow(2)
    return each.mean() if over == "mean" else each.sum() / len(flat(each))


def soft_cross_entropy(teacher: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """Cross-entropy with a teacher's softened prediction, a constant: summed over classes, mean over rows."""
    return soft_ce((flat(teacher) / temperature).softmax(-1), flat(student) / temperature)


def soft_ce(target: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy with probabilities, which are constants: summed over classes, mean over rows."""
    return -(target.detach() * logits.log_softmax(-1)).sum(-1).mean()


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of logits: summed over classes, mean over the batch; the teacher is a constant."""
    target = flat(teacher.detach()).log_softmax(-1)
    return (target.exp() * (target - flat(student).log_softmax(-1))).sum(-1).mean()


@dataclass(frozen=True)
class Mutual:
    """Cross-entropy and, with this share, KL from the column `parent` (logits): FML's Eq. 5 for one's own model."""

    share: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        def terms(logits: Tensor) -> dict[str, Tensor]:
            own = ce(logits, batch.y)
            return {"ce": (1 - self.share) * own, "kl": self.share * kl(batch.parent, logits)}

        return {name: terms(net(batch.x)) for name, net in nets.items()}
