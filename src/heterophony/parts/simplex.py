"""Weights that are shares of one: the nearest such to any numbers."""

from __future__ import annotations

from collections.abc import Sequence


def onto_simplex(values: Sequence[float]) -> list[float]:
    """The nearest point, in the Euclidean sense, whose coordinates are at least zero and add up to one.

    All coordinates are lowered alike, and what would be negative is zero. Equal ones stay equal, to the bit.
    Reference: Duchi et al., Efficient Projections onto the l1-Ball for Learning in High Dimensions, ICML 2008.
    """
    top = max(values)
    lowered = [value - top for value in values]  # moves the point along the normal: the same projection, nothing huge
    total = level = 0.0
    for n, value in enumerate(sorted(lowered, reverse=True), start=1):
        total += value
        if value * n <= total - 1:  # it, and all that are smaller, end as zero
            break
        level = (total - 1) / n
    return [max(0.0, value - level) for value in lowered]
