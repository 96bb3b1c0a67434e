"""Robust rules: what some of many points say together, where a few of them may be anything.

Each rule takes a matrix with one point a row, and returns one point. `combine.py` says which rule a node uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

AT_ONCE = 2**23  # numbers that torch sorts at once; it refuses more than twice as many
STEPS = 200  # of Weiszfeld's iteration at most


def median(points: Tensor) -> Tensor:
    """Return the median of each coordinate; of an even number, the mean of the two in the middle."""
    return torch.cat([part.quantile(0.5, dim=0) for part in _columns(points)])


def trimmed(points: Tensor, cut: int) -> Tensor:
    """Return the mean of each coordinate without the lowest and the highest `cut` values."""
    return torch.cat([part.sort(0).values[cut : len(points) - cut].mean(0) for part in _columns(points)])


def _columns(points: Tensor) -> tuple[Tensor, ...]:
    return torch.split(points, max(1, AT_ONCE // len(points)), dim=1)


def apart(points: Tensor) -> Tensor:
    """Return the distance of each point from each other, in float64."""
    wide = points.double()
    return torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist")


def chosen(points: Tensor, liars: int, keep: int) -> list[int]:
    """Return the places of the points that Krum chooses: those nearest to their nearest neighbours.

    A point's score is the sum of squares of the distances to its n - liars - 1 nearest others.

    Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017. There it is
    one neighbour fewer; Allouah et al. (see `mixed`) count as here.
    """
    nearest = apart(points).square().sort(1).values[:, : len(points) - liars]  # the first is the point itself
    order = nearest.sum(1).sort(stable=True).indices
    return sorted(order[:keep].tolist())


def geometric_median(points: Tensor) -> Tensor:
    """Return the point with the smallest sum of distances, by Weiszfeld's iteration from the coordinates' median.

    Pillutla et al., Robust Aggregation for Federated Learning, IEEE TSP 2022, with equal weights.
    """
    wide = points.double()
    found = median(wide)
    scale = float((wide - found).norm(dim=1).median())
    for _ in range(STEPS):
        weights = 1 / (wide - found).norm(dim=1).clamp_min(1e-9 * scale + 1e-30)
        before, found = found, (weights.unsqueeze(1) * wide).sum(0) / weights.sum()
        if float((found - before).norm()) <= 1e-10 * scale:
            break
    return found.to(points)


def clipped(points: Tensor, start: Tensor, radius: float | None) -> tuple[Tensor, Tensor]:
    """Return the points, none farther from `start` than the radius, and by which share each way was shortened.

    Without a radius it is the median of the distances.
    """
    ways = points.double() - start.double()
    lengths = ways.norm(dim=1)
    most = float(lengths.quantile(0.5)) if radius is None else radius
    shares = (most / lengths.clamp_min(1e-300)).clamp(max=1)
    return start.double() + shares.unsqueeze(1) * ways, shares


def centred_clipping(points: Tensor, start: Tensor, radius: float | None, steps: int) -> Tensor:
    """Return where `start` comes to in so many steps, each by the mean of the clipped ways to the points.

    Karimireddy et al., Learning from History for Byzantine Robust Optimization, ICML 2021.
    """
    found = start.double()
    for _ in range(steps):
        found = clipped(points, found, radius)[0].mean(0)
    return found.to(points)


def mixed(points: Tensor, liars: int) -> Tensor:
    """Return for each point the mean of the n - liars points nearest to it, itself among them (NNM).

    Allouah et al., Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity, AISTATS 2023.
    """
    nearest = apart(points).sort(dim=1, stable=True).indices[:, : len(points) - liars]
    return torch.stack([points[near].mean(0) for near in nearest])


def trusting(steps: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of steps that are as long as one's own, each by the cosine of its angle with that; and the
    cosines. A step that goes another way than one's own by a right angle or more does not count.

    Cao et al., FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021.
    """
    length = own.norm()
    lengths = steps.norm(dim=1)
    trust = (steps @ own / (lengths * length).clamp_min(1e-300)).clamp(0, 1)
    scaled = (trust * length / lengths.clamp_min(1e-300)).unsqueeze(1) * steps
    return scaled.sum(0) / trust.sum().clamp_min(1e-300), trust


def filtered(items: Sequence[Tensor], sigma: float, draw: torch.Generator) -> Tensor:
    """Return for each row the mean of the items that a filter keeps. See `kept_by_filter`."""
    return kept_by_filter(items, sigma, draw)[0]


def kept_by_filter(items: Sequence[Tensor], sigma: float, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return for each row the mean of the items that a filter keeps, and which it keeps.

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
    return means.float(), kept
