"""Local optimisers by name: torch's own, described so that a work order can carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import Parameter


@dataclass(frozen=True)
class Optimiser:
    """A class of `torch.optim` and its options."""

    name: str
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, parameters: Iterable[Parameter], **how: bool) -> torch.optim.Optimizer:
        """The optimiser; `how` it computes (fused, capturable) does not change what."""
        made: torch.optim.Optimizer = getattr(torch.optim, self.name)(parameters, lr=self.lr, **self.options, **how)
        return made


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimiser:
    """Plain or heavy-ball gradient descent."""
    return Optimiser("SGD", lr, {"momentum": momentum, "weight_decay": weight_decay})


def adam(lr: float, weight_decay: float = 0.0, amsgrad: bool = False) -> Optimiser:
    """Adam, or AMSGrad."""
    return Optimiser("Adam", lr, {"weight_decay": weight_decay, "amsgrad": amsgrad})
