"""A method that never marked the product that it calls its headline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.runs.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Unmarked(Finding):
    """The products that were marked instead."""

    key = "marked"
    value: list[str]

    @classmethod
    def of(cls, evidence: Evidence) -> Unmarked | None:
        marked = list(dict.fromkeys(rating.product for rating in evidence.table.ratings()))
        return cls(marked) if marked and evidence.product not in marked else None

    def lines(self, summary: Summary) -> list[str]:
        if not summary.rounds:  # it may still come
            return []
        there = ", ".join(self.value)
        return [f"the method's headline {summary.product!r} was never marked; marked were {there}"]
