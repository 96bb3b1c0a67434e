"""Means and differences of named tensors. Everything works on values and returns new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from heterophony.kernel.work import Named


def mean(items: Sequence[Named], shares: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Return the mean of named tensors, summed in the order given.

    `shares` says how much each item counts. Without shares, or where none is above zero, all count alike.
    """
    if not items:
        raise ValueError("the mean of no messages: a skipped round brings no mail, so test `if mail` first")
    if shares is None or not any(shares):
        shares = [1.0] * len(items)
    if len(shares) != len(items) or min(shares) < 0 or not sum(shares) > 0:
        raise ValueError(f"{len(items)} items need as many shares >= 0, got {list(shares)}")
    total = sum(shares)
    names = list(items[0])
    merged = torch._foreach_mul([items[0][name] for name in names], shares[0] / total)  # one launch for many tensors
    for item, share in zip(items[1:], shares[1:], strict=True):
        torch._foreach_add_(merged, [item[name] for name in names], alpha=share / total)
    return dict(zip(names, merged, strict=True))


def finite(named: Named) -> bool:
    """Return whether all numbers are finite. What a client sends may be so large that a sum of it is not."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in named.values())


def combine(items: Sequence[Tensor], how: Literal["mean", "median", "trimmed"] = "mean") -> Tensor:
    """Combine tensors of the same shape to one, element by element.

    A few wrong tensors cannot move the median far. The same holds for the trimmed mean, which leaves out the lowest and
    the highest fifth: at least one tensor at each end where there are three or more.
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
    """Return for each row the mean of the items that a filter keeps.

    It is the filter for points of bounded second moments. For each row on its own, it looks for the direction in which
    the items that are left have the largest variance. If this variance is above 9 sigma^2, it removes all items whose
    distance from the mean along that direction reaches a threshold, and looks again. The threshold is a random share of
    the greatest distance, with density 2z on [0, 1], drawn among the shares that leave somebody. The farthest item
    always goes. Where all are equally far, none does.

    Diakonikolas et al., Being Robust (in High Dimensions) Can Be Practical, ICML 2017: the filter for second moments.

    Args:
        items: a matrix of each participant, all of the same shape.
        sigma: the largest standard deviation, in any direction, that honest items have.
        draw: where the thresholds are drawn from.
    """
    points = torch.stack([item.double() for item in items], 1)
    kept = torch.ones(points.shape[:2], dtype=torch.bool)
    rows = torch.arange(len(points))  # those that the last turn has changed; at first, all
    means = points.new_empty(points.shape[0], points.shape[2])
    while len(rows):
        shares = (kept[rows] / kept[rows].sum(1, keepdim=True)).unsqueeze(2)
        means[rows] = (shares * points[rows]).sum(1)
        gaps = points[rows] - means[rows].unsqueeze(1)
        _, values, directions = torch.linalg.svd(shares.sqrt() * gaps, full_matrices=False)
        far = (gaps @ directions[:, :1].mT).squeeze(2).abs()
        nearest = far.where(kept[rows], math.inf).amin(1)
        farthest = far.where(kept[rows], 0).amax(1)
        least = nearest / farthest
        # A number for every row, so that what a row draws does not depend on which others are left.
        drawn = torch.rand(len(points), generator=draw, dtype=torch.float64)[rows]
        share = (least**2 + (1 - least**2) * drawn).sqrt()
        threshold = (share * farthest).unsqueeze(1)
        beyond = (far >= threshold) & (far > nearest.unsqueeze(1))
        spread = values[:, 0] > 3 * sigma
        uneven = least < 1 - 1e-9  # equally far, but for rounding, counts as equally far
        torn = spread & uneven
        rows = rows[torn]
        kept[rows] &= ~beyond[torn]
    return means.float()


def difference(a: Named, b: Named) -> dict[str, Tensor]:
    """Return a - b, name by name."""
    return {name: a[name] - b[name] for name in a}


def shifted(a: Named, b: Named, scale: float = 1.0) -> dict[str, Tensor]:
    """Return a + scale * b for the names of b, and the other tensors of a as they are."""
    return {name: tensor.add(b[name], alpha=scale) if name in b else tensor for name, tensor in a.items()}


def dot(a: Named, b: Named) -> Tensor:
    """Return the inner product over all names of a."""
    total = next(iter(a.values())).new_zeros(())
    for name in a:
        total = total + (a[name] * b[name]).sum()
    return total
