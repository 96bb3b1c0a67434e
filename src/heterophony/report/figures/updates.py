"""What servers of a tree merge: how long the mean update is, and how far the children's updates agree (B-HFL)."""

from __future__ import annotations

from heterophony.report.chapters import ArmRuns, Chapter, Series, averaged, band, in_words, noted
from heterophony.report.figure import Curve, Figure, Panel
from heterophony.report.figures.tree import ancestry

WHAT = (("pseudo-gradient.norm", "norm of the mean update", "norm"), ("cosine", "cosine between updates", "cosine"))


def draw(chapter: Chapter) -> list[Figure]:
    return [figure for arm in chapter.arms if (figure := _figure(chapter, arm)) is not None]


def _figure(chapter: Chapter, arm: ArmRuns) -> Figure | None:
    levels: dict[str, str] = {}
    panels, last = [], []
    for quantity, title, axis in WHAT:
        lines = []
        for level, series in _by_level(arm, quantity).items():
            rounds, mean, low, high = band(series)
            if rounds:
                color = levels.setdefault(level, f"k{len(levels) % 10}")
                lines.append(Curve([r + 1 for r in rounds], mean, level, color, low, high, dots=len(rounds) < 30))
                last.append(f"{axis} {in_words(mean[-1], 2, '')} at {level}")
        if lines:
            panels.append(Panel(lines, title, "merge", axis))
    if not panels:
        return None
    caption = (
        f"{arm.label}: what arrives at each level before it is merged, mean over the nodes there. Cosines near zero "
        f"mean that the children pull in unrelated directions.{chapter.bands}"
    )
    title = "Updates by level" + (f", {arm.label}" if len(chapter.arms) > 1 else "")
    return Figure(
        f"updates-{arm.label}", title, caption, "In the end: " + ", ".join(last) + ".", panels, list(levels.items())
    )


def _by_level(arm: ArmRuns, quantity: str) -> dict[str, list[Series]]:
    """Return for each level the series of each seed."""
    found: dict[str, list[Series]] = {}
    for run in arm.runs:
        parents = run.recipe.get("parents") or {}

        def level(row: dict[str, object], parents: dict[str, str] = parents) -> str:
            depth = len(ancestry(str(row["node"]), parents)) - 1
            return "root" if depth == 0 and parents else f"level {depth}" if parents else str(row["node"])

        for name, series in averaged(noted(run, "note", quantity.__eq__), level).items():
            found.setdefault(name, []).append(series)
    return {name: found[name] for name in sorted(found, key=lambda name: (name != "root", name))}
