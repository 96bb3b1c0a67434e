"""Local optimisers by name: torch's own, described so that a work order can carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import Parameter


@dataclass(frozen=True)
class Optimiser:
    """A class of `torch.optim` and its options.

    `clip` is the longest gradient that a network steps by; a longer one is shortened first.
    `changing` says that the rate is another one from round to round. It does not change a step. What was captured for
    one rate then serves the others.
    """

    name: str
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)
    clip: float | None = None
    changing: bool = False

    def build(
        self, parameters: Iterable[Parameter], lr: torch.Tensor | None = None, **how: bool
    ) -> torch.optim.Optimizer:
        """Build the optimiser. `how` it computes (fused, capturable), and where `lr` stands, do not change what."""
        rate = self.lr if lr is None else lr
        made: torch.optim.Optimizer = getattr(torch.optim, self.name)(parameters, lr=rate, **self.options, **how)
        return made

    def plain(self, parameters: Iterable[Parameter]) -> torch.optim.Optimizer | Descent:
        """Build the optimiser for steps that are run one by one, which are short."""
        parameters = list(parameters)
        if not parameters:  # of a model that is frozen; torch has none for that
            return Descent((), self.lr)
        if self.name == "SGD" and self.options.keys() <= {"momentum", "weight_decay", "nesterov"}:
            return Descent(parameters, self.lr, **self.options)
        return self.build(parameters)

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise unless a parameter's kept state is one that this optimiser can go on from."""
        missing = [key for key in self._moments if key not in state]
        if state and missing:
            kept = ", ".join(state)
            raise ValueError(f"the kept state ({kept}) is another optimiser's: {self.name} needs {', '.join(missing)}")

    @property
    def _moments(self) -> tuple[str, ...]:
        """Return the names of what the optimiser keeps of a parameter."""
        if self.name == "SGD" and self.options.get("momentum"):
            return ("momentum_buffer",)
        if self.name == "Adam" and self.options.get("amsgrad"):
            return ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
        if self.name in ("Adam", "AdamW"):
            return ("step", "exp_avg", "exp_avg_sq")
        return ()


class Descent:
    """What `torch.optim.SGD` computes, to the bit, without torch's bookkeeping.

    For a small network, that takes longer than the step itself.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        self.parameters, self.lr, self.momentum, self.decay = list(parameters), lr, momentum, weight_decay
        self.nesterov = nesterov
        self.state: dict[Parameter, dict[str, Any]] = {}

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        moved = [p for p in self.parameters if p.grad is not None]
        with torch.no_grad():
            for parameter in moved:
                update = parameter.grad
                assert update is not None
                if self.decay:
                    update = update.add(parameter, alpha=self.decay)
                if self.momentum:
                    update = self._smoothed(parameter, update)
                parameter.add_(update, alpha=-self.lr)

    def _smoothed(self, parameter: Parameter, update: torch.Tensor) -> torch.Tensor:
        """Return the momentum of a parameter after this update."""
        kept = self.state.setdefault(parameter, {})
        if kept.get("momentum_buffer") is None:
            kept["momentum_buffer"] = update.clone()
        else:
            kept["momentum_buffer"].mul_(self.momentum).add_(update)
        smoothed: torch.Tensor = kept["momentum_buffer"]
        return update.add(smoothed, alpha=self.momentum) if self.nesterov else smoothed


def clipped(gradients: Mapping[str, torch.Tensor], longest: float) -> dict[str, torch.Tensor]:
    """Return a network's gradients, made shorter where together they are longer than `longest`.

    It is what `torch.nn.utils.clip_grad_norm_` computes, without looking at a value, so that it can be captured.
    """
    if not gradients:
        return {}
    norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients.values()])
    share = (longest / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
    return {name: gradient * share for name, gradient in gradients.items()}


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False) -> Optimiser:
    """Return gradient descent: plain, heavy-ball, or with Nesterov's momentum."""
    options: dict[str, Any] = {"momentum": momentum, "weight_decay": weight_decay}
    if nesterov:  # told only where it is so: a program without it keeps the name that it has in runs' records
        options["nesterov"] = True
    return Optimiser("SGD", lr, options)


def adam(lr: float, weight_decay: float = 0.0, amsgrad: bool = False) -> Optimiser:
    """Return Adam, or AMSGrad."""
    return Optimiser("Adam", lr, {"weight_decay": weight_decay, "amsgrad": amsgrad})


def adamw(lr: float, weight_decay: float = 0.0) -> Optimiser:
    """Return AdamW: Adam whose weight decay is no part of the gradient."""
    return Optimiser("AdamW", lr, {"weight_decay": weight_decay})
