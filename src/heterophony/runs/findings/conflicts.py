"""How often what others teach goes against a peer's own gradient (FedH2L)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.base.amounts import percent
from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.metrics import conflicts

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Conflicts(Finding):
    """For each node: rounds, the share of them in conflict, and the mean cosine there."""

    key = "conflicts"
    value: dict[str, dict[str, float]]

    @classmethod
    def of(cls, evidence: Evidence) -> Conflicts | None:
        found = conflicts(evidence.table)
        return cls(found) if found else None

    def lines(self, summary: Summary) -> list[str]:
        share = sum(own["share"] for own in self.value.values()) / len(self.value)
        cosine = sum(own["cosine"] for own in self.value.values()) / len(self.value)
        rounds = f"{percent(share)} of rounds"
        return [f"what others teach went against local gradients in {rounds}, cosine {cosine:.2f}"]
