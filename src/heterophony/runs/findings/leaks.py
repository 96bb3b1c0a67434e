"""Images that are in two splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.runs.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Leaks(Finding):
    """Which images are in which splits, a sentence each; none where the splits are sound."""

    key = "leaks"
    value: list[str]

    @classmethod
    def of(cls, evidence: Evidence) -> Leaks:
        return cls(list(evidence.spec.get("leaks", ())))

    def lines(self, summary: Summary) -> list[str]:
        return [f"LEAKY: {leak}" for leak in self.value]
