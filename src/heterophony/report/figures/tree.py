"""A tree and what the model of every node in it is worth (B-HFL, Section 5)."""

from __future__ import annotations

from typing import Any

from heterophony.report.chapters import Arm, Chapter, mean, told
from heterophony.report.figure import Dots, Figure, Line, Panel
from heterophony.runs.findings.levels import LevelAccuracies
from heterophony.runs.folder import Folder
from heterophony.tables.levels import COLUMNS

TITLES = {"own": "a leaf's own data", "subtree": "its subtree's data", "union": "all data", "proxy": "proxy data"}
MOST = 40  # nodes in words


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


def _figure(chapter: Chapter, arm: Arm, parents: dict[str, str]) -> Figure:
    tables = [_levels(run) for run in arm.runs]
    levels = [row["level"] for row in tables[0]]
    lines: list[Line] = []
    for place, column in enumerate(COLUMNS):
        values = [[table[i][column] for table in tables] for i in range(len(levels))]
        if any(v is not None for own in values for v in own):
            means = [mean(own) for own in values]
            ys = [None if value is None else 100 * value for value in means]
            low, high = None, None
            if len(tables) > 1 and None not in ys:
                low, high = [100 * min(own) for own in values], [100 * max(own) for own in values]
            lines.append(Line(levels, ys, TITLES[column], f"k{place}", low, high, dots=True))
    accuracies = _union(arm.first)
    depth = max(len(ancestry(leaf, parents)) for leaf in parents) - 1
    root = next(parent for parent in parents.values() if parent not in parents)
    unions = [(row["level"], row["union"]) for row in tables[0]]
    text = ", ".join(f"{level} {told(None if value is None else 100 * value)}" for level, value in unions)
    panels = [
        Panel(_drawing(arm.first, parents, accuracies), f"{arm.label}: accuracy on all data", bare=True),
        Panel(lines, "by level, leaves first", "", "accuracy (%)"),
    ]
    leaves = len([node for node in parents if node not in parents.values()])
    dashed = " Dashed: residual links." if arm.first.spec["settings"].get("far", True) and _links(arm.first) else ""
    gone = " A dash: its outputs are no numbers." if None in accuracies.values() else ""
    seeds = ", and from the lowest to the highest seed" if len(tables) > 1 else ""
    caption = (
        f"A tree of {leaves} leaves and depth {depth}; every node keeps a model, and the number in it is its accuracy "
        f"on the test data of all, seed {arm.seeds[0]}.{gone}{dashed} Right: the models of each "
        f"level, mean over the leaves below{seeds}."
    )
    named = ", ".join(f"{node} {told(value)}" for node, value in list(accuracies.items())[:MOST])
    named += f" and {len(accuracies) - MOST} more" if len(accuracies) > MOST else ""
    alt = f"Accuracy on all data by level, from the leaves to {root}: {text}. By node: {named}."
    legend = [(line.name, line.color) for line in lines]
    title = "The tree" + (f", {arm.label}" if len(chapter.arms) > 1 else "")
    return Figure(f"tree-{arm.label}", title, caption, alt, panels, legend)


def ancestry(node: str, parents: dict[str, str]) -> list[str]:
    """A node, its parent, and so on to the root."""
    path = [node]
    while path[-1] in parents:
        path.append(parents[path[-1]])
    return path


def _union(folder: Folder) -> dict[str, float | None]:
    """node -> accuracy of its model on all test sets, at its last evaluation; None if that is no number."""
    last: dict[str, dict[str, dict[str, Any]]] = {}
    for row in folder.table:
        if row["quantity"] == "accuracy" and row["split"] == "test" and row["n"]:
            last.setdefault(row["node"], {})[row["set"]] = row
    found: dict[str, float | None] = {}
    for node, own in last.items():
        sums = [row["sum"] for row in own.values()]
        found[node] = None if None in sums else 100 * sum(sums) / sum(row["n"] for row in own.values())
    return found


def _drawing(folder: Folder, parents: dict[str, str], accuracies: dict[str, float | None]) -> list[Line | Dots]:
    """Leaves in a row at the bottom, every other node above the middle of its children."""
    nodes = list(dict.fromkeys([*parents, *parents.values()]))
    leaves = [node for node in nodes if node not in parents.values()]
    at: dict[str, tuple[float, float]] = {}

    def place(node: str) -> tuple[float, float]:
        if node not in at:
            children = [child for child, parent in parents.items() if parent == node]
            depth = len(ancestry(node, parents)) - 1
            xs = [place(child)[0] for child in children]
            at[node] = (sum(xs) / len(xs) if xs else float(order.index(node)), -float(depth))
        return at[node]

    order = sorted(leaves, key=lambda leaf: [nodes.index(step) for step in reversed(ancestry(leaf, parents))])
    for node in nodes:
        place(node)
    lines: list[Line | Dots] = [
        Line([at[node][0], at[parent][0]], [at[node][1], at[parent][1]], "", "faint", width=1.0)
        for node, parent in parents.items()
    ]
    used = folder.spec["settings"].get("far", True)
    residuals = _links(folder) if used else []
    for upper, lower in residuals:
        if upper in at and lower in at:
            (x0, y0), (x1, y1) = at[upper], at[lower]
            bow = 0.06 * max(1, len(leaves)) * (1 if x1 >= x0 else -1)
            lines.append(Line([x0, (x0 + x1) / 2 + bow, x1], [y0, (y0 + y1) / 2, y1], "", "1", dash=True, width=1.0))
    known = [value for node in nodes if (value := accuracies.get(node)) is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    shades = [_shade(accuracies.get(node), low, high) for node in nodes]
    few = len(leaves) <= 20
    shown = [node for node in nodes if node in accuracies and (few or node not in leaves)]
    text = [(told(accuracies[node], 0, "") if accuracies[node] is not None else "-") if node in shown else ""
            for node in nodes]  # fmt: skip
    below = [node if few or node not in leaves else "" for node in nodes]
    hover = [f"{node}: {told(accuracies[node])}" if node in accuracies else node for node in nodes]
    small = 9.0 if not few else 24.0 if len(leaves) <= 12 else 20.0
    sizes = [small if node in leaves else 24.0 for node in nodes]
    xs, ys = [at[node][0] for node in nodes], [at[node][1] for node in nodes]
    lines.append(Dots(xs, ys, "", shades, sizes, text, below, hover))
    return lines


def _links(folder: Folder) -> list[list[str]]:
    found: list[list[str]] = folder.recipe.get("setting", {}).get("topology", {}).get("residuals", [])
    return found


def _shade(value: float | None, low: float, high: float) -> str:
    """A place on the sequential scale, from a third of it to its end."""
    if value is None:
        return "faint"
    share = (value - low) / (high - low) if high > low else 1.0
    return f"s{30 + round(60 * share)}"
