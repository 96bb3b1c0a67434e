"""Whether what others teach goes against what a peer learns itself: cosines of the two gradients (FedH2L)."""

from __future__ import annotations

from heterophony.report.chapters import ArmRuns, Chapter, averaged, noted, some, thin
from heterophony.report.figure import Curve, Figure, Panel
from heterophony.runs.folder import Folder
from heterophony.runs.population import spread

QUANTITY = "gradients.cosine"
MOST = 10  # participants: as many as there are colours


def draw(chapter: Chapter) -> list[Figure]:
    found = []
    for arm in chapter.arms:
        cosines = by_node(arm.first)
        if cosines:
            found.append(_figure(chapter, arm, cosines))
    return found


Cosines = dict[int, float]


def by_node(folder: Folder) -> dict[str, Cosines]:
    found = averaged(noted(folder, "note", QUANTITY.__eq__), lambda row: str(row["node"]))
    known = {node: {r: value for r, value in own.items() if value is not None} for node, own in found.items()}
    return {node: own for node, own in known.items() if own}


def _figure(chapter: Chapter, arm: ArmRuns, cosines: dict[str, Cosines]) -> Figure:
    shown = spread({node: arm.first.homes.get(node, node) for node in cosines}, MOST)
    reach = max(1, max(map(len, cosines.values())) // 20)
    smooth, share = [], []
    for place, node in enumerate(shown):
        series = cosines[node]
        rounds = thin(sorted(series))
        color = f"k{place}"
        values = [_around(series, r, reach, float) for r in rounds]
        x: list[float | str] = [r + 1 for r in rounds]
        smooth.append(Curve(x, values, node, color))
        share.append(Curve(x, [100 * _around(series, r, reach, lambda v: float(v < 0)) for r in rounds], node, color))
    everything = [value for series in cosines.values() for value in series.values()]
    against = 100 * sum(value < 0 for value in everything) / len(everything)
    panels = [
        Panel(smooth, "cosine of the two gradients", "round", "cosine"),
        Panel(share, "rounds in conflict", "round", "%", span=(-3, 103)),
    ]
    who = some(len(shown), len(cosines), "participant")
    caption = (
        f"{arm.label}, seed {arm.seeds[0]}, {who}: the gradient of what others teach against a peer's own, mean of the "
        f"{2 * reach + 1} rounds around. Below zero they conflict, and projection takes the conflicting part away."
    )
    alt = f"In {against:.0f} % of all rounds and peers the two gradients conflict; curves of {who}."
    legend = [(line.name, line.color) for line in smooth]
    title = "Gradients in conflict" + (f", {arm.label}" if len(chapter.arms) > 1 else "")
    return Figure(f"conflicts-{arm.label}", title, caption, alt, panels, legend)


def _around(series: Cosines, at: int, reach: int, value: type[float] | object) -> float:
    near = [value(series[r]) for r in range(at - reach, at + reach + 1) if r in series]  # type: ignore[operator]
    return float(sum(near) / len(near))
