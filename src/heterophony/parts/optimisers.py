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

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise unless a parameter's kept state is one that this optimiser can go on from."""
        if missing := [key for key in self._moments if state and key not in state]:
            kept = ", ".join(state)
            raise ValueError(f"the kept state ({kept}) is another optimiser's: {self.name} needs {', '.join(missing)}")

    @property
    def _moments(self) -> tuple[str, ...]:
        if self.name == "SGD":
            return ("momentum_buffer",) if self.options.get("momentum") else ()
        more = ("max_exp_avg_sq",) if self.options.get("amsgrad") else ()
        return ("step", "exp_avg", "exp_avg_sq", *more) if self.name == "Adam" else ()


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimiser:
    """Plain or heavy-ball gradient descent."""
    return Optimiser("SGD", lr, {"momentum": momentum, "weight_decay": weight_decay})


def adam(lr: float, weight_decay: float = 0.0, amsgrad: bool = False) -> Optimiser:
    """Adam, or AMSGrad."""
    return Optimiser("Adam", lr, {"weight_decay": weight_decay, "amsgrad": amsgrad})
