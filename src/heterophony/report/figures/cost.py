"""What a figure costs: against the bytes that were sent, and against virtual time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from heterophony.base.amounts import size
from heterophony.base.wording import sentence
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
        f"{sentence(chapter.score.label)} on all domains, {seed}, against every byte of every message, on each link it "
        "used, and against the virtual clock of the simulated devices. Who sends nothing is a dashed line."
    ) + lost(chapter)
    return [Figure("cost", "What it costs", caption, "In all, " + ", ".join(totals) + ".", panels, chapter.legend)]


def _against_bytes(chapter: Chapter) -> Panel | None:
    """Return the panel of bytes; None where nobody sends any."""
    arms = [arm for arm in chapter.arms if arm.curves]
    spent = {arm.label: _spent(arm.first, [at["time"] for at in arm.curves[0]]) for arm in arms}
    paid = [total for own in spent.values() for total in own if total > 0]
    if not paid:
        return None
    ends: tuple[float, float] = (min(paid), max(paid))
    if ends[0] == ends[1]:  # else a dashed line had no length
        ends = ticks.ends(paid[:1])
    curves = []
    for arm in arms:
        own = spent[arm.label]
        curves.append(_paying(chapter, arm, own) if any(own) else _sending_nothing(chapter, arm, ends))
    known = [curve for curve in curves if curve.x]
    return Panel(known, "against bytes", "sent so far", chapter.score.axis, log=True, bytes=True)


def _against_time(chapter: Chapter) -> Panel | None:
    """Return the panel of virtual time; None where nobody's clock moves."""
    curves = []
    for arm in chapter.arms:
        points = [(at["time"], y) for at, y in zip(arm.curves[0], _figures(chapter, arm), strict=True)]
        curves.append(_curve(chapter, arm, points))
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


def _paying(chapter: Chapter, arm: ArmRuns, spent: list[int]) -> Curve:
    """Return the curve of a method that sends something, from the moment on when it has."""
    points = [(x, y) for x, y in zip(spent, _figures(chapter, arm), strict=True) if x > 0]
    return _curve(chapter, arm, points)


def _sending_nothing(chapter: Chapter, arm: ArmRuns, ends: tuple[float, float]) -> Curve:
    """Return a dashed line at a method's last figure, all over the panel; without a figure, an empty one."""
    last = _figures(chapter, arm)[-1:]
    x, y = (list(ends), last * 2) if last != [None] and last else ([], [])
    return Curve(x, y, arm.label, chapter.colors[arm.label], dash=True)


def _figures(chapter: Chapter, arm: ArmRuns) -> list[float | None]:
    """Return the figures of a method's first run as they are shown."""
    scale = chapter.score.scale
    return [None if at["acc"] is None else scale * at["acc"] for at in arm.curves[0]]


def _curve(chapter: Chapter, arm: ArmRuns, points: Sequence[tuple[float, float | None]]) -> Curve:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Curve(xs, ys, arm.label, chapter.colors[arm.label], dots=len(points) < 30)
