"""Gradient transforms. They are called with (gradients, parameters, **aux), and have no branches on values.

They are small frozen objects, so that a run's record can say which one was used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from heterophony.kernel.work import Named
from heterophony.parts.aggregate import dot


@dataclass(frozen=True)
class Proximal:
    """Add a pull towards the anchor: the gradient of mu/2 |w - anchor|^2 (FedProx, Li et al. 2020, Eq. 2)."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ValueError(f"mu is a weight >= 0, got {self.mu}")

    def __call__(self, gradients: Named, parameters: Named, *, anchor: Named) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, gradient in gradients.items():
            found[name] = gradient.add(parameters[name] - anchor[name], alpha=self.mu)
        return found


@dataclass(frozen=True)
class Shifted:
    """Add the same to the gradient of every step: SCAFFOLD's correction c - c_i."""

    def __call__(self, gradients: Named, parameters: Named, *, by: Named) -> dict[str, Tensor]:
        return {name: g + by[name] if name in by else g for name, g in gradients.items()}


@dataclass(frozen=True)
class Curved:
    """Add the gradient of strength * sum_j (w - c_j)^T F_j (w - c_j), from the sums of F_j and of F_j c_j (FedCurv).

    A stiffness above `limit` is lowered to it: at a rate of 1/limit, a step then goes all the way back.
    """

    strength: float
    limit: float = 10.0

    def __call__(self, gradients: Named, parameters: Named, *, stiffness: Named, centres: Named) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, gradient in gradients.items():
            stiff = 2 * self.strength * stiffness[name]
            lowered = self.limit / stiff.clamp_min(self.limit)
            pull = stiff * parameters[name] - 2 * self.strength * centres[name]
            found[name] = gradient + lowered * pull
        return found


@dataclass(frozen=True)
class Sparse:
    """Add the gradient of l1 |psi|_1 + l2 |sigma - psi|^2; of weights sigma + psi, only psi moves (FedMatch)."""

    l1: float
    l2: float

    def __call__(self, gradients: Named, parameters: Named, *, sigma: Named) -> dict[str, Tensor]:
        found = dict(gradients)
        for name in [name for name in gradients if name in sigma]:
            psi = parameters[name] - sigma[name]
            found[name] = gradients[name] + self.l1 * psi.sign() + 2 * self.l2 * (psi - sigma[name])
        return found


@dataclass(frozen=True)
class Chain:
    """Apply one transform after the other. `aux` has a part for each."""

    one: Callable[..., dict[str, Tensor]]
    other: Callable[..., dict[str, Tensor]]

    def __call__(self, gradients: Named, parameters: Named, *, first: Named, then: Named) -> dict[str, Tensor]:
        return self.other(self.one(gradients, parameters, **first), parameters, **then)


@dataclass(frozen=True)
class Project:
    """Take the nearest gradient that does not conflict with `onto` (FedH2L, Eq. 14 in closed form)."""

    def __call__(self, gradients: Named, parameters: Named, *, onto: Named) -> dict[str, Tensor]:
        v = _over(-dot(gradients, onto), dot(onto, onto)).clamp_min(0)
        return {name: g + v * onto[name] for name, g in gradients.items()}


@dataclass(frozen=True)
class Gem:
    """Project as GEM does: with `eps` on the Gram diagonal and, where there is a conflict, v >= `margin`.

    Reference: Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NeurIPS 2017, and its code.
    """

    margin: float = 0.5
    eps: float = 1e-3

    def __call__(self, gradients: Named, parameters: Named, *, onto: Named) -> dict[str, Tensor]:
        along = dot(gradients, onto)
        v = _over(-along, dot(onto, onto) + self.eps).clamp_min(self.margin)
        v = torch.where(along < 0, v, torch.zeros_like(v))
        return {name: g + v * onto[name] for name, g in gradients.items()}


@dataclass(frozen=True)
class PCGrad:
    """Average both gradients, each without what conflicts with the other (Yu et al., NeurIPS 2020, Algorithm 1).

    Of two gradients, each meets only one other, as it was at first. So the random order of the paper changes nothing.
    """

    def __call__(self, gradients: Named, parameters: Named, *, onto: Named) -> dict[str, Tensor]:
        against = (-dot(gradients, onto)).clamp_min(0)
        v = _over(against, dot(onto, onto))
        w = _over(against, dot(gradients, gradients))
        return {name: (g + v * onto[name] + onto[name] + w * g) / 2 for name, g in gradients.items()}


def _over(a: Tensor, squared: Tensor) -> Tensor:
    """Return a / |x|^2, where `a` is an inner product with x and `squared` is |x|^2. It is 0 for x = 0."""
    return a / squared.clamp_min(torch.finfo(squared.dtype).tiny)
