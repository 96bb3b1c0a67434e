"""Who knows what: every model on every domain's test data, as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heterophony.base.wording import sentence
from heterophony.report.chapters import ArmRuns, Chapter, in_words, some, with_and
from heterophony.report.figure import Figure, Heat, Panel
from heterophony.runs.folder import Folder
from heterophony.runs.population import spread
from heterophony.tables.interval import mean

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


@dataclass(frozen=True)
class _Map:
    """The map of one method."""

    arm: ArmRuns
    heat: Heat
    part: str  # which part of models and domains it has, if not all

    @property
    def cells(self) -> list[float | None]:
        return [cell for row in self.heat.z for cell in row]

    @property
    def worst(self) -> str:
        """Say which figure is the worst of all."""
        score = self.arm.first.summary.score
        known = [cell for cell in self.cells if cell is not None]
        least = (min if score.higher else max)(known, default=None)
        return f"{self.arm.label} at worst {in_words(least, score.digits - 1, score.unit)}"

    @property
    def of_server(self) -> bool:
        """Whether no row is a participant's."""
        return not set(self.heat.rows) & set(self.arm.first.homes)


def draw(chapter: Chapter) -> list[Figure]:
    """Return one figure with a map for each method; none where there is one domain only."""
    maps = [made for arm in chapter.arms if (made := _map(arm)) is not None]
    if not maps:
        return []
    notes = _notes(maps)
    common = " A server has one model for all." if any(own.of_server for own in maps) else ""
    caption = (
        f"{sentence(chapter.score.axis)} of each participant's model (rows) on each domain's test data (columns), "
        f"last evaluation{_seeds(chapter)}.{common}{notes}"
    )
    alt = (
        "A heat map a method; the own domain is on the diagonal. Of all pairs of model and domain: "
        f"{', '.join(own.worst for own in maps)}.{notes}"
    )
    panels = [Panel([own.heat], own.arm.label, "test domain", "model of") for own in maps]
    return [
        Figure("domains", "Models by domains", caption, alt, panels, width="small" if len(panels) > 2 else "middle")
    ]


def _seeds(chapter: Chapter) -> str:
    if chapter.several:
        return ", mean over seeds"
    return f", seed {chapter.arms[0].seeds[0]}" if chapter.one_seed else ""


def _notes(maps: Sequence[_Map]) -> str:
    """Say what maps leave out, and what a dash in them means."""
    notes = ""
    if parts := list(dict.fromkeys(own.part for own in maps if own.part)):
        notes += f" Shown are {with_and(parts)}."
    if any(cell is None for own in maps for cell in own.cells):
        notes += " A dash is no number: outputs were none, or a model has other classes."
    return notes


def _map(arm: ArmRuns) -> _Map | None:
    """Return the map of one method; None where it would have one column."""
    tables = [matrix(run) for run in arm.runs]
    homes, score = arm.first.homes, arm.first.summary.score
    rows = spread({node: homes.get(node, node) for node in tables[0]}, MOST)
    everywhere = list(dict.fromkeys(domain for own in tables[0].values() for domain in own))
    columns = _columns(everywhere, {homes.get(row) for row in rows})
    if len(columns) < 2 or not rows:
        return None
    cells = [[_shown(tables, row, column, score.scale) for column in columns] for row in rows]
    digits = score.digits - 1 if len(columns) <= 12 else None
    part = ""
    if len(rows) < len(tables[0]) or len(columns) < len(everywhere):
        part = with_and([some(len(rows), len(tables[0]), "model"), some(len(columns), len(everywhere), "domain")])
    return _Map(arm, Heat(cells, rows, columns, digits=digits), part)


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
