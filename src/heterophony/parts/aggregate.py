"""Means and differences of named tensors. Everything works on values and returns new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from heterophony.kernel.work import Named


def mean(items: Sequence[Named], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """The (weighted) mean of named tensors, summed in the order given. If no weight is above zero, all count alike."""
    if not items:
        raise ValueError("the mean of no messages: a skipped round brings no mail, so test `if mail` first")
    shares = [1.0] * len(items) if weights is None or not any(weights) else list(weights)
    if len(shares) != len(items) or min(shares) < 0 or not sum(shares) > 0:
        raise ValueError(f"{len(items)} items need as many weights >= 0, got {shares}")
    total = sum(shares)
    names = list(items[0])
    merged = torch._foreach_mul([items[0][name] for name in names], shares[0] / total)  # one launch for many tensors
    for item, share in zip(items[1:], shares[1:], strict=True):
        torch._foreach_add_(merged, [item[name] for name in names], alpha=share / total)
    return dict(zip(names, merged, strict=True))


def combine(items: Sequence[Tensor], how: Literal["mean", "median", "trimmed"] = "mean") -> Tensor:
    """One tensor from many of the same shape, element by element.

    The median, and the mean without the lowest and highest fifth (at least one of each where there are three or more),
    are not moved far by a few that are wrong.
    """
    if not items:
        raise ValueError("nothing to combine: a skipped round brings no mail, so test `if mail` first")
    stacked = torch.stack([item.float() for item in items])
    if how == "mean":
        return stacked.mean(0)
    if how == "median":
        return stacked.quantile(0.5, dim=0)  # of an even number, the mean of the two in the middle
    cut = max(1, len(items) // 5) if len(items) >= 3 else 0
    return stacked.sort(0).values[cut : len(items) - cut].mean(0)


def filtered(items: Sequence[Tensor], sigma: float, draw: torch.Generator) -> Tensor:
    """For each row, the mean of those whom a filter keeps, for points of bounded second moments.

    As long as those who are left have, in some direction, a variance above 9 sigma^2, those go whose distance from the
    mean along the direction of the largest is beyond a threshold: a share of the greatest distance, drawn with density
    2z on [0, 1] among those that leave somebody. The farthest always goes; where all are equally far, nobody does.
    Diakonikolas et al., Being Robust (in High Dimensions) Can Be Practical, ICML 2017: the filter for second moments.
    """
    points = torch.stack([item.double() for item in items], 1)
    kept, rows = torch.ones(points.shape[:2], dtype=torch.bool), torch.arange(len(points))
    means = points.new_empty(points.shape[0], points.shape[2])
    while len(rows):  # those that the last turn has changed
        shares = (kept[rows] / kept[rows].sum(1, keepdim=True)).unsqueeze(2)
        means[rows] = (shares * points[rows]).sum(1)
        gaps = points[rows] - means[rows].unsqueeze(1)
        _, values, directions = torch.linalg.svd(shares.sqrt() * gaps, full_matrices=False)
        far = (gaps @ directions[:, :1].mT).squeeze(2).abs()
        nearest, farthest = far.where(kept[rows], math.inf).amin(1), far.where(kept[rows], 0).amax(1)
        least = nearest / farthest
        drawn = torch.rand(len(points), generator=draw, dtype=torch.float64)[rows]  # a row's do not depend on others
        share = (least**2 + (1 - least**2) * drawn).sqrt()
        beyond = (far >= (share * farthest).unsqueeze(1)) & (far > nearest.unsqueeze(1))
        torn = (values[:, 0] > 3 * sigma) & (least < 1 - 1e-9)  # two are equally far, but for rounding
        rows = rows[torn]
        kept[rows] &= ~beyond[torn]
    return means.float()


def difference(a: Named, b: Named) -> dict[str, Tensor]:
    """a - b, name by name."""
    return {name: a[name] - b[name] for name in a}


def shifted(a: Named, b: Named, scale: float = 1.0) -> dict[str, Tensor]:
    """a + scale * b for the names of b; the other names of a as they are."""
    return {name: tensor.add(b[name], alpha=scale) if name in b else tensor for name, tensor in a.items()}


def dot(a: Named, b: Named) -> Tensor:
    """The inner product over all names of a."""
    return sum(((a[name] * b[name]).sum() for name in a), start=next(iter(a.values())).new_zeros(()))
