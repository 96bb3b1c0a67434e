"""Losses by term: what each model minimises, over the rounds."""

from __future__ import annotations

from heterophony.report.chapters import ArmRuns, Chapter, Series, averaged, band, in_words, noted
from heterophony.report.figure import Curve, Figure, Panel


def draw(chapter: Chapter) -> list[Figure]:
    colors: dict[str, str] = {}
    panels, ends = [], []
    for arm in chapter.arms:
        lines = _lines(arm, colors)
        if lines:
            panels.append(Panel(lines, arm.label, "round", "loss"))
            ends.append(f"{arm.label}: " + ", ".join(f"{line.name} {in_words(line.y[-1], 2, '')}" for line in lines))
    if not panels:
        return []
    caption = (
        "Terms of the training losses, with their weights, mean over the steps of a round and over nodes; named by "
        f"model and term, with the data they are on.{chapter.bands}"
    )
    if any(None in line.y for panel in panels for line in panel.traces):  # type: ignore[union-attr]
        caption += " A gap is a loss that is no number."
    return [
        Figure(
            "losses", "Losses by term", caption, "In the end, " + "; ".join(ends) + ".", panels, list(colors.items())
        )
    ]


def _lines(arm: ArmRuns, colors: dict[str, str]) -> list[Curve]:
    series: dict[str, list[Series]] = {}
    for run in arm.runs:
        rows = noted(run, "training", lambda _: True)
        for name, own in averaged(rows, lambda row: f"{row['quantity']} ({row['set']})").items():
            series.setdefault(name, []).append(own)
    lines = []
    for name, seeds in series.items():
        rounds, mean, low, high = band(seeds)
        if rounds:
            color = colors.setdefault(name, f"k{len(colors) % 10}")
            lines.append(Curve([r + 1 for r in rounds], mean, name, color, low, high, dots=len(rounds) < 30))
    return lines
