"""Where a logarithmic axis of bytes is labelled: round numbers, as many as there is room for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from heterophony.base.amounts import size

ROOM = 0.15  # of the axis, between two labels
LEAST = 0.3  # decades: so that one value is not at both ends of its axis


def ends(values: Iterable[float]) -> tuple[float, float]:
    """Return where the axis of these values begins and ends."""
    known = [value for value in values if value > 0]
    low, high = min(known), max(known)
    wide = math.log10(high / low)
    factor = 10 ** max(0.05 * wide, (LEAST - wide) / 2)
    return low / factor, high * factor


def ticks(low: float, high: float) -> list[float]:
    """Return the longest row of round numbers between these that leaves room for labels; of equals the roundest."""
    wide = math.log10(high / low)
    found = []
    for row in _rows(low, high):
        inside = [value for value in row if low <= value <= high]
        if all(math.log10(b / a) >= ROOM * wide for a, b in pairwise(inside)):
            found.append(inside)
    return max(found, key=len)


def label(value: float) -> str:
    return size(value).replace(".0 ", " ")


def _rows(low: float, high: float) -> Iterable[Sequence[float]]:
    """Yield decades, parts of decades, then even steps, which are for axes shorter than a decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    yield []
    for every in (4, 3, 2, 1):
        yield [10.0**k for k in decades if k % every == 0]
    for parts in ((1, 3), (1, 2, 5)):
        yield [part * 10.0**k for k in decades for part in parts]
    for k in range(decades[-1], max(decades[0] - 2, -1), -1):
        for part in (5, 2, 1):
            step = part * 10.0**k
            first, last = math.ceil(low / step), math.floor(high / step)
            if last - first < 1 / ROOM:
                yield [n * step for n in range(first, last + 1)]
