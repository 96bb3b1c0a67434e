"""A tree and what the model of every node in it is worth (B-HFL, Section 5)."""

from __future__ import annotations

from typing import Any

from heterophony.base.wording import sentence
from heterophony.report.chapters import ArmRuns, Chapter, in_words, rated
from heterophony.report.figure import Curve, Dots, Figure, Panel
from heterophony.runs.findings.levels import LevelAccuracies
from heterophony.runs.folder import Folder
from heterophony.tables.interval import mean
from heterophony.tables.levels import COLUMNS
from heterophony.tables.metrics import pooled

TITLES = {"own": "a leaf's own data", "subtree": "its subtree's data", "union": "all data", "proxy": "proxy data"}
MOST = 40  # nodes in words
Point = tuple[float, float]


def draw(chapter: Chapter) -> list[Figure]:
    found = []
    for arm in chapter.arms:
        parents = arm.first.recipe.get("parents")
        if parents and _levels(arm.first):
            found.append(_figure(chapter, arm, parents))
    return found


def _levels(folder: Folder) -> list[dict[str, Any]]:
    """Return one row a level, leaves first; none where the run is no tree."""
    found = folder.summary.found(LevelAccuracies)
    return [] if found is None else found.value


def _figure(chapter: Chapter, arm: ArmRuns, parents: dict[str, str]) -> Figure:
    """Return the tree of one method's first seed, with curves over the levels of all its seeds beside it."""
    figures = _union(arm.first)
    curves = _curves([_levels(run) for run in arm.runs], chapter.score.scale)
    panels = [
        Panel(_drawing(arm.first, parents, figures), f"{arm.label}: {chapter.score.label} on all data", bare=True),
        Panel(curves, "by level, leaves first", "", chapter.score.axis),
    ]
    legend = [(curve.name, curve.color) for curve in curves]
    title = "The tree" + (f", {arm.label}" if len(chapter.arms) > 1 else "")
    caption, alt = _caption(arm, parents, figures), _alt(arm, parents, figures)
    return Figure(f"tree-{arm.label}", title, caption, alt, panels, legend)


def _curves(tables: list[list[dict[str, Any]]], scale: int) -> list[Curve]:
    """Return a curve over the levels for each kind of test data, the mean over seeds with their band."""
    levels = [row["level"] for row in tables[0]]
    curves = []
    for place, column in enumerate(COLUMNS):
        by_level = [[table[at][column] for table in tables] for at in range(len(levels))]
        means = [mean(seeds) for seeds in by_level]
        ys = [None if value is None else scale * value for value in means]
        low, high = None, None
        if len(tables) > 1 and None not in ys:
            low = [scale * min(seeds) for seeds in by_level]
            high = [scale * max(seeds) for seeds in by_level]
        if _any_known(by_level):
            curves.append(Curve(levels, ys, TITLES[column], f"k{place}", low, high, dots=True))
    return curves


def _any_known(by_level: list[list[float | None]]) -> bool:
    return any(value is not None for seeds in by_level for value in seeds)


def _caption(arm: ArmRuns, parents: dict[str, str], figures: dict[str, float | None]) -> str:
    leaves = _leaves(list(parents), parents)
    depth = max(len(ancestry(leaf, parents)) for leaf in parents) - 1
    gone = " A dash: its outputs are no numbers." if None in figures.values() else ""
    dashed = " Dashed: residual links." if _residuals(arm.first) else ""
    seeds = ", and from the lowest to the highest seed" if len(arm.runs) > 1 else ""
    return (
        f"A tree of {len(leaves)} leaves and depth {depth}; every node keeps a model, and the number in it is its "
        f"{arm.first.summary.score.label} on the test data of all, seed {arm.seeds[0]}.{gone}{dashed} Right: the "
        f"models of each level, mean over the leaves below{seeds}."
    )


def _alt(arm: ArmRuns, parents: dict[str, str], figures: dict[str, float | None]) -> str:
    """Return the drawing in words."""
    score = arm.first.summary.score
    root = next(parent for parent in parents.values() if parent not in parents)
    by_level = []
    for row in _levels(arm.first):
        union = None if row["union"] is None else score.scale * row["union"]
        by_level.append(f"{row['level']} {rated(union, score)}")
    by_node = ", ".join(f"{node} {rated(value, score)}" for node, value in list(figures.items())[:MOST])
    if len(figures) > MOST:
        by_node += f" and {len(figures) - MOST} more"
    levels = ", ".join(by_level)
    return f"{sentence(score.label)} on all data by level, from the leaves to {root}: {levels}. By node: {by_node}."


def ancestry(node: str, parents: dict[str, str]) -> list[str]:
    """Return a node, its parent, and so on to the root."""
    path = [node]
    while path[-1] in parents:
        path.append(parents[path[-1]])
    return path


def _union(folder: Folder) -> dict[str, float | None]:
    """Return for each node the figure of its last model on all test sets; None if that is no number."""
    score = folder.summary.score
    last: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}  # by node, quantity and set
    for row in folder.table.select(split="test"):
        if row["quantity"] in score.quantities:
            last.setdefault(row["node"], {}).setdefault(row["quantity"], {})[row["set"]] = row
    found = {node: pooled(score, own) for node, own in last.items()}
    return {node: None if value is None else score.scale * value for node, value in found.items()}


def _drawing(folder: Folder, parents: dict[str, str], figures: dict[str, float | None]) -> list[Curve | Dots]:
    """Return the links of a tree and its nodes, each shaded by its figure."""
    nodes = list(dict.fromkeys([*parents, *parents.values()]))
    at = _places(nodes, parents)
    links = [_link(at[node], at[parent]) for node, parent in parents.items()]
    width = len(_leaves(nodes, parents))
    bows = [_bow(at[a], at[b], width) for a, b in _residuals(folder) if a in at and b in at]
    return [*links, *bows, _dots(nodes, parents, at, figures)]


def _places(nodes: list[str], parents: dict[str, str]) -> dict[str, Point]:
    """Put the leaves in a row at the bottom, and every other node above the middle of its children."""
    rank = {node: place for place, node in enumerate(nodes)}

    def path(leaf: str) -> list[int]:
        return [rank[step] for step in reversed(ancestry(leaf, parents))]

    leaves = sorted(_leaves(nodes, parents), key=path)
    across = {leaf: float(place) for place, leaf in enumerate(leaves)}
    depth = {node: len(ancestry(node, parents)) - 1 for node in nodes}
    for node in sorted(nodes, key=depth.__getitem__, reverse=True):  # children before their parents
        if node not in across:
            below = [across[child] for child, parent in parents.items() if parent == node]
            across[node] = sum(below) / len(below)
    return {node: (across[node], -float(depth[node])) for node in nodes}


def _link(a: Point, b: Point) -> Curve:
    return Curve([a[0], b[0]], [a[1], b[1]], "", "faint", width=1.0)


def _bow(upper: Point, lower: Point, leaves: int) -> Curve:
    """Return a residual link, bent so that it does not hide behind the links of the tree."""
    (x0, y0), (x1, y1) = upper, lower
    aside = 0.06 * max(1, leaves) * (1 if x1 >= x0 else -1)
    return Curve([x0, (x0 + x1) / 2 + aside, x1], [y0, (y0 + y1) / 2, y1], "", "1", dash=True, width=1.0)


def _dots(nodes: list[str], parents: dict[str, str], at: dict[str, Point], figures: dict[str, float | None]) -> Dots:
    """Return the nodes. Where there are many leaves, these are small and have no names."""
    known = [value for node in nodes if (value := figures.get(node)) is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    leaves = set(_leaves(nodes, parents))
    few = len(leaves) <= 20
    small = 9.0 if not few else 24.0 if len(leaves) <= 12 else 20.0
    shades, sizes, text, below, hover = [], [], [], [], []
    for node in nodes:
        named = few or node not in leaves
        value = figures.get(node)
        shades.append(_shade(value, low, high))
        sizes.append(small if node in leaves else 24.0)
        text.append(_number(node, figures) if named else "")
        below.append(node if named else "")
        hover.append(f"{node}: {in_words(value)}" if node in figures else node)
    xs, ys = [at[node][0] for node in nodes], [at[node][1] for node in nodes]
    return Dots(xs, ys, "", shades, sizes, text, below, hover)


def _number(node: str, figures: dict[str, float | None]) -> str:
    """Return what stands in a node: nothing where it has no model, a dash where its outputs are no numbers."""
    if node not in figures:
        return ""
    value = figures[node]
    return "-" if value is None else in_words(value, 0, "")


def _leaves(nodes: list[str], parents: dict[str, str]) -> list[str]:
    inner = set(parents.values())
    return [node for node in nodes if node not in inner]


def _residuals(folder: Folder) -> list[list[str]]:
    """Return the residual links that the method used: pairs of an upper and a lower node."""
    if not folder.spec["settings"].get("far", True):
        return []
    found: list[list[str]] = folder.recipe.get("setting", {}).get("topology", {}).get("residuals", [])
    return found


def _shade(value: float | None, low: float, high: float) -> str:
    """Return a place on the sequential scale, from a third of it to its end."""
    if value is None:
        return "faint"
    share = (value - low) / (high - low) if high > low else 1.0
    return f"s{30 + round(60 * share)}"
