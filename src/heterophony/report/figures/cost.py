"""What accuracy costs: against the bytes that were sent, and against virtual time."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from heterophony.base.amounts import size
from heterophony.report import ticks
from heterophony.report.chapters import Arm, Chapter, lost
from heterophony.report.figure import Figure, Line, Panel
from heterophony.runs.folder import Folder


def draw(chapter: Chapter) -> list[Figure]:
    sent = {arm.label: _spent(arm.first, [at["time"] for at in arm.curves[0]]) for arm in chapter.arms if arm.curves}
    paid = [max(values) for values in sent.values() if values and max(values) > 0]
    panels = []
    if paid:
        first = min(value for values in sent.values() for value in values if value > 0)
        ends = (first, max(paid)) if first < max(paid) else ticks.ends([first])  # else a dashed line had no length
        lines = [_bytes(chapter, arm, sent[arm.label], *ends) for arm in chapter.arms if arm.curves]
        panels.append(Panel([line for line in lines if line.x], "against bytes", "sent so far", "accuracy (%)",
                            log=True, bytes=True))  # fmt: skip
    times = [_times(chapter, arm) for arm in chapter.arms]
    if any(line.x and float(line.x[-1]) > 0 for line in times):
        panels.append(Panel([line for line in times if line.x], "against virtual time", "virtual seconds",
                            "accuracy (%)"))  # fmt: skip
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


def _spent(folder: Folder, times: list[float]) -> list[int]:
    """Bytes that had left by each of these moments."""
    rows = sorted((r["time"], r["payload"] * r["hops"]) for r in folder.ledger.messages if r["status"] != "withheld")
    moments = [time for time, _ in rows]
    totals = [0, *accumulate(paid for _, paid in rows)]
    return [totals[bisect_right(moments, time)] for time in times]


def _bytes(chapter: Chapter, arm: Arm, spent: list[int], first: float, last: float) -> Line:
    color = chapter.colors[arm.label]
    ys = [at["acc"] for at in arm.curves[0]]
    if not any(spent):
        end = ys[-1] if ys else None
        return Line([] if end is None else [first, last], [100 * end] * 2 if end is not None else [], arm.label, color,
                    dash=True)  # fmt: skip
    known = [(x, None if y is None else 100 * y) for x, y in zip(spent, ys, strict=True) if x > 0]
    return Line([x for x, _ in known], [y for _, y in known], arm.label, color, dots=len(known) < 30)


def _times(chapter: Chapter, arm: Arm) -> Line:
    known = [(at["time"], None if at["acc"] is None else 100 * at["acc"]) for at in arm.curves[0]]
    color = chapter.colors[arm.label]
    return Line([x for x, _ in known], [y for _, y in known], arm.label, color, dots=len(known) < 30)
