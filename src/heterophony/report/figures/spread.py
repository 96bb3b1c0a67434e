"""How all participants fare, where there are too many for a table: their figures, from the worst to the best."""

from __future__ import annotations

from heterophony.base.wording import sentence
from heterophony.report.chapters import ArmRuns, Chapter
from heterophony.report.figure import Curve, Figure, Panel
from heterophony.report.tables import MOST

WHAT = (("private", "own share of the test data"), ("acc", "all domains"), ("wdp", "own domain"))


def draw(chapter: Chapter) -> list[Figure]:
    panels, said = [], []
    seen: list[dict[str, list[float]]] = []
    for figure, title in WHAT:
        found = {arm.label: own for arm in chapter.arms if len(own := _sorted(arm, figure)) > MOST}
        if found in seen or not any(len(set(own)) > 1 for own in found.values()):
            continue  # one domain is all there is; or everyone has the same
        seen.append(found)
        lines = []
        for label, own in found.items():
            shares: list[float | str] = [100 * place / (len(own) - 1) for place in range(len(own))]
            lines.append(Curve(shares, [chapter.score.scale * one for one in own], label, chapter.colors[label]))
            middle = chapter.score.scale * own[len(own) // 2]
            said.append(f"{title}, {label}: half of {len(own)} participants are at {middle:.3g} or above")
        panels.append(Panel(lines, title, "participants, from the lowest to the highest (%)", chapter.score.axis))
    if not panels:
        return []
    one = f", seed {chapter.arms[0].seeds[0]}" if chapter.one_seed else ", the first seed of each"
    caption = f"{sentence(chapter.score.label)} of every participant in the last round{one}, sorted for each method."
    return [Figure("spread", "All participants", caption, ". ".join(said) + ".", panels, chapter.legend)]


def _sorted(arm: ArmRuns, figure: str) -> list[float]:
    """Return the figures of those participants that have one."""
    values = [own.get(figure) for own in arm.first.summary.metrics.participants.values()]
    return sorted(value for value in values if value is not None)
