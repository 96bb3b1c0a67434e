"""Classes that are tested though nobody trains on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.runs.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Untrained(Finding):
    """The classes of each source, a sentence each."""

    key = "untrained"
    value: list[str]

    @classmethod
    def of(cls, evidence: Evidence) -> Untrained | None:
        gaps = evidence.spec.get("untrained")
        return None if gaps is None else cls(list(gaps))

    def lines(self, summary: Summary) -> list[str]:
        return [f"UNTRAINED: {gap}" for gap in self.value]
