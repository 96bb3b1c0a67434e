"""Elastic weight consolidation: a gradient part that holds back the weights that mattered for what was learned before.

The penalty is strength/2 sum_i F_i (w_i - c_i)^2 with the Fisher information F (its diagonal) and the weights c as they
were. Online: F is a fading sum over rounds, c the weights after the last one. Of each weight strength * F is at most
`limit`: a stiffer pull would overshoot and diverge (at a rate of 1/limit, a step goes all the way back).
References: Kirkpatrick et al., PNAS 2017, Eq. 3; Schwarz et al., Progress & Compress, ICML 2018, Section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from heterophony.kernel.work import Named


@dataclass(frozen=True)
class Ewc:
    """The gradient of the penalty, added; a gradient transform."""

    strength: float
    limit: float = 10.0

    def __call__(self, gradients: Named, parameters: Named, *, fisher: Named, centre: Named) -> dict[str, Tensor]:
        return {
            name: g.addcmul((self.strength * fisher[name]).clamp_max(self.limit), parameters[name] - centre[name])
            for name, g in gradients.items()
        }


def fisher(gradients: list[Named], rows: list[int]) -> dict[str, Tensor]:
    """The diagonal from the mean gradients of batches of so many rows: mean over batches of rows * gradient^2.

    Where a model has settled, gradients of single rows are about zero in the mean, and the square of a batch's mean is
    one over its rows of theirs.
    """
    total = {name: g.square() * rows[0] for name, g in gradients[0].items()}
    for gradient, n in zip(gradients[1:], rows[1:], strict=True):
        total = {name: t + gradient[name].square() * n for name, t in total.items()}
    return {name: t / len(gradients) for name, t in total.items()}


def faded(old: Named | None, new: Named, decay: float) -> dict[str, Tensor]:
    """decay * old + new."""
    return {name: t if old is None else t.add(old[name], alpha=decay) for name, t in new.items()}
