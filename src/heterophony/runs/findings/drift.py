"""What models know of the present and of the past, where data are streams that change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.drift import over_time
from heterophony.tables.interval import mean

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class OverTime(Finding):
    """One row a round: figures on present and on past data, and what was forgotten."""

    key = "drift"
    value: list[dict[str, Any]]

    @classmethod
    def of(cls, evidence: Evidence) -> OverTime | None:
        stream = evidence.recipe.get("setting", {}).get("data", {}).get("stream")
        if stream is None:
            return None
        from heterophony.data.stream import Drift  # late: it brings torch

        concepts = len(stream.get("concepts", [{}]))
        drift = Drift(stream.get("drift", "sudden"), concepts, stream.get("every", 10))
        seconds = stream.get("seconds")
        return cls(over_time(evidence.table, evidence.homes, evidence.product, drift.shares, seconds))

    def lines(self, summary: Summary) -> list[str]:
        if not self.value:
            return []
        last = self.value[-1]
        now = ", ".join(f"{what} {summary.score.text(last[what])}" for what in ("present", "past", "forgotten"))
        always = summary.score.text(mean(row["present"] for row in self.value))
        return [f"after round {last['round'] + 1} of the stream: {now}; mean over time: present {always}"]
