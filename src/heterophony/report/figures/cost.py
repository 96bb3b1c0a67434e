"""What a figure costs: against the bytes that were sent, and against virtual time."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from heterophony.base.amounts import size
from heterophony.report import ticks
from heterophony.report.chapters import ArmRuns, Chapter, lost
from heterophony.report.figure import Curve, Figure, Panel
from heterophony.runs.folder import Folder


def draw(chapter: Chapter) -> list[Figure]:
    """Return one figure with a panel of bytes and one of virtual time, as far as there are any."""
    panels = [panel for panel in (_against_bytes(chapter), _against_time(chapter)) if panel is not None]
    if not panels:
        return []
    totals = [f"{arm.label} sends {size(arm.first.summary.sent)}" for arm in chapter.arms]
    seeds = {arm.seeds[0] for arm in chapter.arms}
    seed = f"seed {min(seeds)}" if len(seeds) == 1 else "each one's first seed"
    caption = (
        f"Accuracy on all domains, {seed}, against every byte of every message, on each link it used, and against "
        "the virtual clock of the simulated devices. Who sends nothing is a dashed line." + lost(chapter)
    )
    return [Figure("cost", "What it costs", caption, "In all, " + ", ".join(totals) + ".", panels, chapter.legend)]


def _against_bytes(chapter: Chapter) -> Panel | None:
    arms = [arm for arm in chapter.arms if arm.curves]
    sent = [_spent(arm.first, [at["time"] for at in arm.curves[0]]) for arm in arms]
    paid = [total for own in sent for total in own if total > 0]
    if not paid:
        return None
    ends: tuple[float, float] = (min(paid), max(paid))
    if ends[0] == ends[1]:  # else a dashed line had no length
        ends = ticks.ends(paid[:1])
    curves = [_bytes(chapter, arm, own, *ends) for arm, own in zip(arms, sent, strict=True)]
    known = [curve for curve in curves if curve.x]
    return Panel(known, "against bytes", "sent so far", chapter.score.axis, log=True, bytes=True)


def _against_time(chapter: Chapter) -> Panel | None:
    curves = [_times(chapter, arm) for arm in chapter.arms]
    known = [curve for curve in curves if curve.x]
    if not any(float(curve.x[-1]) > 0 for curve in known):
        return None
    return Panel(known, "against virtual time", "virtual seconds", chapter.score.axis)


def _spent(folder: Folder, times: list[float]) -> list[int]:
    """Return the bytes that had left by each of these moments."""
    rows = sorted((r["time"], r["payload"] * r["hops"]) for r in folder.ledger.messages if r["status"] != "withheld")
    moments = [time for time, _ in rows]
    totals = [0, *accumulate(paid for _, paid in rows)]
    return [totals[bisect_right(moments, time)] for time in times]


def _bytes(chapter: Chapter, arm: ArmRuns, spent: list[int], first: float, last: float) -> Curve:
    color, scale = chapter.colors[arm.label], chapter.score.scale
    ys = [at["acc"] for at in arm.curves[0]]
    if not any(spent):
        end = ys[-1] if ys else None
        xs, flat = ([], []) if end is None else ([first, last], [scale * end] * 2)
        return Curve(xs, flat, arm.label, color, dash=True)
    known = [(x, None if y is None else scale * y) for x, y in zip(spent, ys, strict=True) if x > 0]
    return Curve([x for x, _ in known], [y for _, y in known], arm.label, color, dots=len(known) < 30)


def _times(chapter: Chapter, arm: ArmRuns) -> Curve:
    known = [(at["time"], None if at["acc"] is None else chapter.score.scale * at["acc"]) for at in arm.curves[0]]
    color = chapter.colors[arm.label]
    return Curve([x for x, _ in known], [y for _, y in known], arm.label, color, dots=len(known) < 30)
