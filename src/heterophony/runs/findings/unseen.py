"""How good models are for those who took no part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.unseen import unseen

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Unseen(Finding):
    """For each product and each set that took no part: mean, best and worst figure over the models."""

    key = "unseen"
    value: dict[str, dict[str, dict[str, Any]]]

    @classmethod
    def of(cls, evidence: Evidence) -> Unseen | None:
        found = unseen(evidence.table)
        return cls(found) if found else None

    def lines(self, summary: Summary) -> list[str]:
        text = []
        for product, sets in self.value.items():
            rates = ", ".join(f"{name} {summary.score.text(own['mean'])}" for name, own in sets.items())
            text.append(f"on who took no part, {product!r}: {rates}")
        return text
