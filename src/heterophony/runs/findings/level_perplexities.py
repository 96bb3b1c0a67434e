"""How well the language models of each level of a tree predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.base.amounts import number
from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.levels import COLUMNS, perplexities

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class LevelPerplexities(Finding):
    """One row a level, leaves first: geometric means of perplexity over the leaves below."""

    key = "perplexities"
    value: list[dict[str, Any]]

    @classmethod
    def of(cls, evidence: Evidence) -> LevelPerplexities | None:
        if evidence.parents is None or not evidence.recipe.get("sequences"):
            return None
        return cls(perplexities(evidence.table, evidence.parents, evidence.homes))

    def lines(self, summary: Summary) -> list[str]:
        if not self.value:
            return []
        return ["perplexity of each level's models, geometric mean over leaves", *(_line(row) for row in self.value)]


def _line(row: dict[str, Any]) -> str:
    cells = [f"{number(row[name]):>9s}" for name in COLUMNS]
    return f"  {row['level']:8s}" + "".join(cells)
