"""Who knows what: every model on every domain's test data, as a heat map."""

from __future__ import annotations

from heterophony.base.wording import sentence
from heterophony.report.chapters import ArmRuns, Chapter, listed, mean, some, told
from heterophony.report.figure import Figure, Heat, Panel
from heterophony.runs.folder import Folder
from heterophony.runs.population import spread

MOST = 20  # models and domains: more cannot be read


def matrix(folder: Folder) -> dict[str, dict[str, float | None]]:
    """Return by node and domain the figure of the headline product, last evaluation; None if that is no number."""
    last: dict[tuple[str, str], tuple[int, float | None]] = {}
    for at in folder.table.select(product=folder.headline, split="test").ratings():
        key = at.node, at.set
        if key not in last or at.round >= last[key][0]:
            last[key] = at.round, at.value
    found: dict[str, dict[str, float | None]] = {}
    for (node, domain), (_, value) in last.items():
        found.setdefault(node, {})[domain] = value
    order = {name: place for place, name in enumerate(folder.homes)}
    return {node: found[node] for node in sorted(found, key=lambda node: order.get(node, len(order)))}


def draw(chapter: Chapter) -> list[Figure]:
    score = chapter.score
    panels, worst, parts, gaps, common = [], [], [], False, False
    for arm in chapter.arms:
        made = _panel(arm)
        if made is not None:
            heat, part = made
            known = [cell for row in heat.z for cell in row if cell is not None]
            panels.append(Panel([heat], arm.label, "test domain", "model of"))
            least = (min if score.higher else max)(known, default=None)
            worst.append(f"{arm.label} at worst {told(least, score.digits - 1, score.unit)}")
            parts += [part] if part else []
            common |= not set(heat.rows) & set(arm.first.homes)
            gaps |= any(cell is None for row in heat.z for cell in row)
    if not panels:
        return []
    seeds = ", mean over seeds" if chapter.several else f", seed {chapter.arms[0].seeds[0]}" if chapter.one_seed else ""
    shown = f" Shown are {listed(list(dict.fromkeys(parts)))}." if parts else ""
    dash = " A dash is no number: outputs were none, or a model has other classes." if gaps else ""
    caption = (
        f"{sentence(score.axis)} of each participant's model (rows) on each domain's test data (columns), last "
        f"evaluation{seeds}.{' A server has one model for all.' if common else ''}{shown}{dash}"
    )
    alt = (
        "A heat map a method; the own domain is on the diagonal. Of all pairs of model and domain: "
        f"{', '.join(worst)}.{shown}{dash}"
    )
    return [
        Figure("domains", "Models by domains", caption, alt, panels, width="small" if len(panels) > 2 else "middle")
    ]


def _panel(arm: ArmRuns) -> tuple[Heat, str] | None:
    """Return the map of one method, and which part of models and domains it has if not all."""
    tables = [matrix(run) for run in arm.runs]
    homes = arm.first.homes
    rows = spread({node: homes.get(node, node) for node in tables[0]}, MOST)
    everywhere = list(dict.fromkeys(domain for own in tables[0].values() for domain in own))
    columns = _columns(everywhere, {homes.get(row) for row in rows})
    if len(columns) < 2 or not rows:
        return None
    scale = arm.first.summary.score.scale
    cells = [[_shown(tables, row, column, scale) for column in columns] for row in rows]
    part = ""
    if len(rows) < len(tables[0]) or len(columns) < len(everywhere):
        part = listed([some(len(rows), len(tables[0]), "model"), some(len(columns), len(everywhere), "domain")])
    return Heat(cells, rows, columns, digits=arm.first.summary.score.digits - 1 if len(columns) <= 12 else None), part


def _shown(tables: list[dict[str, dict[str, float | None]]], node: str, domain: str, scale: int) -> float | None:
    """Return a model's figure on a domain as it is shown, mean over seeds; None if that is no number."""
    value = mean(table.get(node, {}).get(domain) for table in tables)
    return None if value is None else scale * value


def _columns(everywhere: list[str], own: set[str | None]) -> list[str]:
    """Return the domains to show: all, or of very many the own ones of those shown, so that there is a diagonal."""
    if len(everywhere) <= MOST:
        return everywhere
    diagonal = [domain for domain in everywhere if domain in own]
    return diagonal if len(diagonal) > 1 else spread({domain: domain for domain in everywhere}, MOST)
