"""How much of their data nodes have told, where what leaves them is noised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.base.amounts import counted
from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.table import EPSILON

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Told(Finding):
    """The epsilon that each node has spent, and how many messages stayed at home for it."""

    key = "privacy"
    value: dict[str, Any]

    @classmethod
    def of(cls, evidence: Evidence) -> Told | None:
        spent = {row["node"]: row["sum"] for row in evidence.table.rows if row["quantity"] == EPSILON}
        if not spent:
            return None
        withheld = sum(row["status"] == "withheld" and row["from"] in spent for row in evidence.ledger.rows)
        return cls({"epsilon": spent, "withheld": withheld})

    def lines(self, summary: Summary) -> list[str]:
        spent: dict[str, float] = self.value["epsilon"]
        most = max(spent, key=lambda node: spent[node])
        text = f"privacy: epsilon {spent[most]:.4g} spent by {most}, the most of {counted(len(spent), 'node')}"
        stayed = self.value["withheld"]
        return [f"{text}; {counted(stayed, 'message')} withheld" if stayed else text]
