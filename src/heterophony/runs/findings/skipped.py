"""Rounds that were skipped because too few had answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.runs.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Skipped(Finding):
    """How many merges were skipped."""

    key = "skipped"
    value: int

    @classmethod
    def of(cls, evidence: Evidence) -> Skipped | None:
        merges = sum(row["incident"] == "skipped" for row in evidence.incidents)
        return cls(merges) if merges else None

    def lines(self, summary: Summary) -> list[str]:
        return []  # the line of the incidents counts them
