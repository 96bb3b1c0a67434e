"""Whose models came to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.base.wording import listed
from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.metrics import diverged

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary

MOST = 5  # names in a line


@dataclass(frozen=True)
class Diverged(Finding):
    """The nodes whose last model gave outputs that are no numbers."""

    key = "diverged"
    value: list[str]

    @classmethod
    def of(cls, evidence: Evidence) -> Diverged | None:
        lost = diverged(evidence.table, evidence.product)
        return cls(lost) if lost else None

    def lines(self, summary: Summary) -> list[str]:
        who = listed(self.value, MOST)
        return [f"DIVERGED: the outputs of {who} are no numbers any more; a lower learning rate (lr) may help"]
