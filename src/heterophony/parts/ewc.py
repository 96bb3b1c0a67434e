"""Elastic weight consolidation: a part of the gradient that holds back weights that mattered for earlier rows.

The penalty is strength/2 sum_i F_i (w_i - c_i)^2. F is the diagonal of the Fisher information, c the weights as they
were. Here it is online: F is a fading sum over rounds, c the weights after the last one. For each weight, strength * F
is at most `limit`. A stiffer pull would overshoot and diverge: at a rate of 1/limit, a step goes all the way back.

References: Kirkpatrick et al., PNAS 2017, Eq. 3; Schwarz et al., Progress & Compress, ICML 2018, Section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from heterophony.kernel.work import Named


@dataclass(frozen=True)
class Ewc:
    """A gradient transform that adds the gradient of the penalty."""

    strength: float
    limit: float = 10.0

    def __call__(self, gradients: Named, parameters: Named, *, fisher: Named, centre: Named) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, gradient in gradients.items():
            pull = (self.strength * fisher[name]).clamp_max(self.limit)
            found[name] = gradient.addcmul(pull, parameters[name] - centre[name])
        return found


def fisher(gradients: list[Named], rows: list[int]) -> dict[str, Tensor]:
    """Return the diagonal of the Fisher information from the mean gradients of batches of so many rows.

    It is the mean over batches of rows * gradient^2. Where a model has settled, gradients of single rows are about zero
    in the mean. The square of the mean of n of them is then about the mean of their squares divided by n.
    """
    total = {name: gradient.square() * rows[0] for name, gradient in gradients[0].items()}
    for batch, size in zip(gradients[1:], rows[1:], strict=True):
        total = {name: so_far + batch[name].square() * size for name, so_far in total.items()}
    return {name: squares / len(gradients) for name, squares in total.items()}


def faded(old: Named | None, new: Named, decay: float) -> dict[str, Tensor]:
    """Return decay * old + new."""
    if old is None:
        return dict(new)
    return {name: tensor.add(old[name], alpha=decay) for name, tensor in new.items()}
