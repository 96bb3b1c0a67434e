"""How good the models of each level of a tree are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.levels import COLUMNS, levels
from heterophony.tasks.score import Score

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class LevelAccuracies(Finding):
    """One row a level, leaves first: mean figures over the leaves below."""

    key = "levels"
    value: list[dict[str, Any]]

    @classmethod
    def of(cls, evidence: Evidence) -> LevelAccuracies | None:
        if evidence.parents is None:
            return None
        return cls(levels(evidence.table, evidence.parents, evidence.homes))

    def lines(self, summary: Summary) -> list[str]:
        if not self.value:
            return []
        title = "models of each level, mean over leaves: " + ", ".join(COLUMNS)
        return [title, *(_line(row, summary.score) for row in self.value)]


def _line(row: dict[str, Any], score: Score) -> str:
    cells = [f"{score.text(row[name]):>9s}" for name in COLUMNS]
    return f"  {row['level']:8s}" + "".join(cells)
