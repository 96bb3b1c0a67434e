"""Losses as the papers write them. Reductions are spelled out, teachers are constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data

Nets = Mapping[str, Callable[[Tensor], Tensor]]


def cross_entropy(nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
    """Mean cross-entropy of each model with the labels."""
    return {name: {"ce": F.cross_entropy(net(batch.x), batch.y)} for name, net in nets.items()}


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher || student) of logits: summed over classes, mean over the batch; the teacher is a constant."""
    target = teacher.detach().log_softmax(-1)
    return (target.exp() * (target - student.log_softmax(-1))).sum(-1).mean()
