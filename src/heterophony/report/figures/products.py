"""What a method makes besides its headline: initial, distilled, global models and the like, over the rounds."""

from __future__ import annotations

from heterophony.report.chapters import ArmRuns, Chapter, band, judged, lost, rated
from heterophony.report.figure import Curve, Figure, Panel
from heterophony.tables.metrics import curve


def draw(chapter: Chapter) -> list[Figure]:
    colors: dict[str, str] = {}
    panels, ends, drawn = [], [], set()
    for arm in chapter.arms:
        lines = _lines(arm, colors)
        if len(lines) > 1:
            panels.append(Panel(lines, arm.label, "round", chapter.score.axis))
            drawn |= {line.name for line in lines}
            ends.append(
                f"{arm.label}: " + ", ".join(f"{line.name} {rated(line.y[-1], chapter.score)}" for line in lines)
            )
    if not panels:
        return []
    legend = [(name, color) for name, color in colors.items() if name in drawn]
    caption = "All models that a method marks as its products, on the test data of all domains, mean over participants."
    caption += chapter.bands + lost(chapter)
    return [
        Figure(
            "products",
            "Products of each method",
            caption,
            "In the end, " + "; ".join(ends) + ".",
            panels,
            legend,
        )
    ]


def _lines(arm: ArmRuns, colors: dict[str, str]) -> list[Curve]:
    names = dict.fromkeys(row["product"] for row in arm.first.table if row["split"] == "test")
    lines = []
    for name in names:
        series = []
        for run in arm.runs:
            try:
                points = curve(run.table, run.homes, name)
            except ValueError:  # a product of several nodes that are no participants: the tree's figure has it
                break
            series.append(judged(points, run.summary.score))
        if len(series) < len(arm.runs) or not all(series):
            continue
        rounds, mean, low, high = band(series)
        if rounds:
            color = colors.setdefault(name, f"k{len(colors) % 10}")
            lines.append(Curve([r + 1 for r in rounds], mean, name, color, low, high, dots=len(rounds) < 30))
    return lines
