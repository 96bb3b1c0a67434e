"""Whether our figures and a paper's go together.

The order comes first, seed by seed. The paper may print a point or more between two arms of a block. If ours lie the
other way round, by an interval without 0, the order is reversed. The paper may print less than that. If ours are a
point or more apart by such an interval, they are apart, tied in print. The figure comes second. It is within noise if
it lies in the 95 % interval for a single further run of ours. Otherwise the order holds if every arm that is printed a
point or more above or below this one is so with us. Otherwise the two differ. With fewer than three seeds there is no
verdict, only what happened.
"""

from __future__ import annotations

from collections.abc import Mapping

from heterophony.tables.interval import Interval, cdf, quantile

POINT = 1.0  # printed differences of less than a point are no order
SEEDS = 3  # with fewer, an interval says little: Student's t is 12.7 with two
LEVEL = 0.05

WITHIN, ORDER, DIFFERS, FEW = "within noise", "order holds", "differs", "too few seeds"
REVERSED, APART = "order reversed", "apart, tied in print"

Gaps = Mapping[str, Interval | None]  # ours less another arm's, seed by seed, by that arm


def verdict(own: Interval | None, printed: float | None, gaps: Gaps, papers: Mapping[str, float]) -> str | None:
    """Judge one arm in one column, whose printed figure is this; None: there is nothing to compare.

    `gaps` are our differences to the other arms, `papers` their printed figures.
    """
    if own is None or printed is None:
        return None
    signs = _signs(printed, gaps, papers)
    if own.n < SEEDS:
        return f"order {'as' if all(signs) else 'not as'} printed, {FEW}" if signs else FEW
    said = disorder(printed, gaps, papers)
    if said is not None:
        return said
    if own.reach is not None and abs(own.mean - printed) <= own.reach:
        return WITHIN
    return ORDER if signs and all(signs) else DIFFERS


def _signs(printed: float, gaps: Gaps, papers: Mapping[str, float]) -> list[bool]:
    """Return whether ours lie as printed beside each arm that is printed a point or more above or below this one."""
    signs = []
    for name, gap in gaps.items():
        if gap is not None and name in papers and abs(printed - papers[name]) >= POINT:
            signs.append((gap.mean > 0) == (printed > papers[name]))
    return signs


def disorder(printed: float, gaps: Gaps, papers: Mapping[str, float]) -> str | None:
    """Say with which arms the order is surely not the printed one, or there is one where none is printed."""
    turned, apart = [], []
    for name, gap in gaps.items():
        if gap is None or name not in papers or not _sure(gap):
            continue
        off = printed - papers[name]
        if abs(off) >= POINT:
            if (off > 0) != (gap.mean > 0):
                turned.append(name)
        elif abs(gap.mean) >= POINT:
            apart.append(name)
    if turned:
        return f"{REVERSED}: {', '.join(turned)}"
    return f"{APART}: {', '.join(apart)}" if apart else None


def _sure(gap: Interval) -> bool:
    """Return whether a difference is one at all: of enough seeds, with 0 outside its interval."""
    return gap.n >= SEEDS and gap.half is not None and abs(gap.mean) > gap.half


def probability(difference: Interval | None, margin: float | None = None) -> float | None:
    """Return the two-sided p of a claim's difference being nothing (or the margin).

    None: seeds are too few, or do not differ.
    """
    if difference is None or difference.n < SEEDS or difference.half is None:
        return None
    by = _favour(difference, margin)
    if not difference.half:
        return 1.0 if by == 0 else None
    t = quantile(0.975, difference.n - 1) * by / difference.half
    return 2 * cdf(-abs(t), difference.n - 1)


def claimed(difference: Interval | None, p: float | None, margin: float | None = None) -> str | None:
    """Judge a claim that one thing is more than another, or as much up to a margin. p is corrected for their number."""
    if difference is None:
        return None
    favours = _favour(difference, margin) > 0
    if p is None:
        why = FEW if difference.n < SEEDS else "the same in all seeds"
        return f"{'as' if favours else 'not as'} claimed, {why}"
    if p >= LEVEL:
        return WITHIN
    return "holds" if favours else "does not hold"


def _favour(difference: Interval, margin: float | None) -> float:
    return difference.mean if margin is None else margin - abs(difference.mean)
