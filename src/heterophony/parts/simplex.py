"""Weights that are shares of one: the nearest such to any numbers."""

from __future__ import annotations

import torch
from torch import Tensor


def onto_simplex(points: Tensor) -> Tensor:
    """For each row, the nearest point, in the Euclidean sense, whose coordinates are at least zero and add up to one.

    All coordinates are lowered alike, and what would be negative is zero. Equal ones stay equal, to the bit.
    Reference: Duchi et al., Efficient Projections onto the l1-Ball for Learning in High Dimensions, ICML 2008.
    """
    lowered = points - points.amax(-1, keepdim=True)  # along the normal: the same projection, and one is never lost
    falling = lowered.sort(-1, descending=True).values
    levels = (falling.cumsum(-1) - 1) / torch.arange(1, points.shape[-1] + 1, dtype=points.dtype)
    last = (falling > levels).sum(-1, keepdim=True) - 1  # the smallest that stays above zero
    return (lowered - levels.gather(-1, last)).clamp_min(0)
