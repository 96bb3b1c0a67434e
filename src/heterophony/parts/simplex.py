"""Shares of one: the nearest to any numbers."""

from __future__ import annotations

import torch
from torch import Tensor


def onto_simplex(points: Tensor) -> Tensor:
    """Return for each row the nearest point whose coordinates are at least zero and add up to one.

    Near is meant in the Euclidean sense. All coordinates are lowered by the same number, and those that would be
    negative are zero. Equal ones stay equal, to the bit.
    Reference: Duchi et al., Efficient Projections onto the l1-Ball for Learning in High Dimensions, ICML 2008.
    """
    # Along the normal, which does not change the projection; the one is then not lost beside large numbers.
    lowered = points - points.amax(-1, keepdim=True)
    falling = lowered.sort(-1, descending=True).values
    levels = (falling.cumsum(-1) - 1) / torch.arange(1, points.shape[-1] + 1, dtype=points.dtype)
    last = (falling > levels).sum(-1, keepdim=True) - 1  # the smallest that stays above zero
    return (lowered - levels.gather(-1, last)).clamp_min(0)
