"""Whether our figures and a paper's go together.

A paper's figure is within noise if it could be one more run of ours: if it lies in the 95 % interval for a single
further run. Otherwise the order holds if every arm of the block that is printed a point or more above or below this one
is so with us. Otherwise the two differ. With fewer than three seeds there is no verdict, only what happened.
"""

from __future__ import annotations

from collections.abc import Mapping

from heterophony.record.interval import Interval

POINT = 1.0  # printed differences of less than a point are no order
SEEDS = 3  # with fewer, an interval says little: Student's t is 12.7 with two

WITHIN, ORDER, DIFFERS, FEW = "within noise", "order holds", "differs", "too few seeds"


def verdict(label: str, ours: Mapping[str, Interval | None], papers: Mapping[str, float]) -> str | None:
    """Of one arm in one column of a block, among all arms there; None where there is nothing to compare."""
    own, printed = ours.get(label), papers.get(label)
    if own is None or printed is None:
        return None
    few = own.n < SEEDS
    if not few and own.reach is not None and abs(own.mean - printed) <= own.reach:
        return WITHIN
    signs = [
        (other.mean < own.mean) == (papers[name] < printed)
        for name, other in ours.items()
        if name != label and other is not None and name in papers and abs(papers[name] - printed) >= POINT
    ]
    if few:
        return f"order {'as' if all(signs) else 'not as'} printed, {FEW}" if signs else FEW
    return ORDER if signs and all(signs) else DIFFERS


def claimed(difference: Interval | None, margin: float | None = None) -> str | None:
    """Of a claim that one thing is more than another, or as much up to a margin, by the differences seed by seed."""
    if difference is None:
        return None
    by = difference.mean if margin is None else margin - abs(difference.mean)  # how much there is in its favour
    if difference.n < SEEDS or difference.half is None:
        return f"{'as' if by > 0 else 'not as'} claimed, {FEW}"
    if by - difference.half > 0:
        return "holds"
    return "does not hold" if by + difference.half < 0 else WITHIN
