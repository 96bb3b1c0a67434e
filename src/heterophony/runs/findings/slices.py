"""How good the slices of a common network are, by what their participants can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.interval import mean

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary

PRODUCT = "slice"


@dataclass(frozen=True)
class Slices(Finding):
    """One row for each capacity: how many hold so much, and the mean figure of their slices on all test sets.

    A slice is evaluated as its participant gets it, before it trains. Whoever holds all has the server's network.
    """

    key = "slices"
    value: list[dict[str, Any]]

    @classmethod
    def of(cls, evidence: Evidence) -> Slices | None:
        capacities = evidence.spec.get("capacity") or {}
        figures: dict[str, list[float]] = {}
        for name, capacity in capacities.items():
            seen = evidence.table.select(product=PRODUCT, node=name, split="test").last()
            own = mean(rating.value for rating in seen.ratings())
            if own is not None:
                figures.setdefault(_told(capacity), []).append(own)
        rows = [{"holds": held, "participants": len(own), "figure": mean(own)} for held, own in figures.items()]
        return cls(rows) if rows else None

    def lines(self, summary: Summary) -> list[str]:
        parts = [f"{row['holds']} {summary.score.text(row['figure'])} ({row['participants']})" for row in self.value]
        return [f"slices on all test sets, by what participants hold: {', '.join(parts)}"]


def _told(capacity: dict[str, Any]) -> str:
    """Return a capacity in words."""
    parts = [f"width {capacity['width']:g}"] if capacity["width"] < 1 else []
    parts += [f"{name} {capacity[name]}" for name in ("depth", "rank") if capacity[name] is not None]
    return " and ".join(parts) or "all"
