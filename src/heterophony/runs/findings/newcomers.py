"""How those fared who joined later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.unseen import newcomers

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary

MOST = 4  # evaluations in a line


@dataclass(frozen=True)
class Newcomers(Finding):
    """For everyone who joined later: figures on its own data before that moment, and since."""

    key = "newcomers"
    value: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, evidence: Evidence) -> Newcomers | None:
        joins = evidence.spec.get("joins")
        if not joins:
            return None
        return cls(newcomers(evidence.table, joins, evidence.homes, evidence.product))

    def lines(self, summary: Summary) -> list[str]:
        text = []
        for name, seen in self.value.items():
            since = ", ".join(summary.score.text(at["own"]) for at in seen["since"][:MOST]) or "not evaluated yet"
            before = summary.score.text(seen["before"])
            text.append(f"{name} joined at {seen['joined']:g} s: own data before {before}, then {since}")
        return text
