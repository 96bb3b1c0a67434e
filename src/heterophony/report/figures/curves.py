"""Learning curves: figures over the rounds, with the band of the seeds."""

from __future__ import annotations

from heterophony.base.wording import sentence
from heterophony.report.chapters import ArmRuns, Chapter, band, judged, lost, rated
from heterophony.report.figure import Curve, Figure, Panel
from heterophony.tables.interval import mean

WHAT = (("acc", "all domains"), ("wdp", "own domain"), ("cdp", "other domains"))


def draw(chapter: Chapter) -> list[Figure]:
    panels = []
    for figure, title in WHAT:
        lines = [line for arm in chapter.arms for line in _line(chapter, arm, figure)]
        if lines:
            panels.append(Panel(lines, title, _axis(chapter), chapter.score.axis))
    if len(panels) == 2:  # one domain for all: the own one is all there is
        panels = panels[:1]
    if not panels:
        return []
    rounds = "" if chapter.same_rounds else " Methods have different rounds, so that the axis is each one's own way."
    caption = (
        f"{sentence(chapter.score.label)} on test data, mean over participants.{chapter.bands}{rounds}{lost(chapter)}"
    )
    return [Figure("curves", "Learning curves", caption, _alt(chapter), panels, chapter.legend)]


def _axis(chapter: Chapter) -> str:
    return "round" if chapter.same_rounds else "share of the rounds (%)"


def _line(chapter: Chapter, arm: ArmRuns, figure: str) -> list[Curve]:
    rounds, middle, low, high = band([judged(points, chapter.score, figure) for points in arm.curves])
    if not rounds:
        return []
    x: list[float | str] = [r + 1 if chapter.same_rounds else 100 * (r + 1) / arm.rounds for r in rounds]
    return [Curve(x, middle, arm.label, chapter.colors[arm.label], low, high, dots=len(x) < 30)]


def _alt(chapter: Chapter) -> str:
    ends = []
    for arm in chapter.arms:
        last = mean([points[-1]["acc"] if points else None for points in arm.curves])
        ends.append(f"{arm.label} ends at {rated(None if last is None else chapter.score.scale * last, chapter.score)}")
    return "Accuracy over the rounds on all domains: " + ", ".join(ends) + "."
