"""Gradient transforms: called with (gradients, parameters, **aux), without branches on values.

They are small frozen objects, so that a run's record can say which one was used.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from heterophony.parts.aggregate import Named, dot


@dataclass(frozen=True)
class Proximal:
    """Pull towards the anchor: the gradient of mu/2 |w - anchor|^2 (FedProx, Li et al. 2020, Eq. 2)."""

    mu: float

    def __call__(self, gradients: Named, parameters: Named, *, anchor: Named) -> dict[str, Tensor]:
        return {name: g.add(parameters[name] - anchor[name], alpha=self.mu) for name, g in gradients.items()}


@dataclass(frozen=True)
class Project:
    """The nearest gradient that does not conflict with `onto` (FedH2L, Eq. 14 in closed form)."""

    def __call__(self, gradients: Named, parameters: Named, *, onto: Named) -> dict[str, Tensor]:
        v = (-dot(gradients, onto) / dot(onto, onto).clamp_min(1e-12)).clamp_min(0)
        return {name: g + v * onto[name] for name, g in gradients.items()}
