"""Who knows what: every model on every domain's test data, as a heat map."""

from __future__ import annotations

import math

from heterophony.record.folder import Folder
from heterophony.report.figure import Figure, Heat, Panel
from heterophony.report.story import Arm, Chapter

MOST = 20  # models and domains: more cannot be read


def matrix(folder: Folder) -> dict[str, dict[str, float]]:
    """model's node -> domain -> accuracy of the headline product, at its last evaluation."""
    last: dict[tuple[str, str], tuple[int, float]] = {}
    for row in folder.table.select(product=folder.headline, split="test", quantity="accuracy"):
        if row["sum"] is not None and row["n"]:
            key = row["node"], row["set"]
            if key not in last or row["round"] >= last[key][0]:
                last[key] = row["round"], row["sum"] / row["n"]
    found: dict[str, dict[str, float]] = {}
    for (node, domain), (_, value) in last.items():
        found.setdefault(node, {})[domain] = value
    order = {name: place for place, name in enumerate(folder.homes)}
    return {node: found[node] for node in sorted(found, key=lambda node: order.get(node, len(order)))}


def draw(chapter: Chapter) -> list[Figure]:
    panels, worst = [], []
    for arm in chapter.arms:
        panel, low = _panel(arm)
        if panel is not None:
            panels.append(panel)
            worst.append(f"{arm.label} at worst {low:.0f} %")
    if not panels:
        return []
    caption = (
        "Accuracy (%) of each participant's model (rows) on each domain's test data (columns), last evaluation, mean "
        "over seeds."
    )
    alt = (
        "A heat map a method; the own domain is on the diagonal. Of all pairs of model and domain: "
        + ", ".join(worst)
        + "."
    )
    return [
        Figure("domains", "Models by domains", caption, alt, panels, width="small" if len(panels) > 2 else "middle")
    ]


def _panel(arm: Arm) -> tuple[Panel | None, float]:
    tables = [matrix(run) for run in arm.runs]
    rows = list(tables[0])[:MOST]
    columns = list(dict.fromkeys(domain for row in rows for domain in tables[0][row]))[:MOST]
    if len(columns) < 2 or not rows:
        return None, math.nan
    cells: list[list[float | None]] = []
    for row in rows:
        values = [[table.get(row, {}).get(column) for table in tables] for column in columns]
        cells.append([None if any(v is None for v in own) else 100 * sum(own) / len(own) for own in values])  # type: ignore[arg-type]
    low = min((cell for row in cells for cell in row if cell is not None), default=math.nan)
    heat = Heat(cells, rows, columns, digits=0 if len(columns) <= 12 else None)
    return Panel([heat], arm.label, "test domain", "model of"), low
