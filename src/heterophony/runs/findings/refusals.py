"""Messages that were refused at a receiver's door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.base.amounts import counted
from heterophony.runs.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class RefusedMessages(Finding):
    """How many `messages` were refused, and what the `first` refusal said."""

    key = "refused"
    value: dict[str, Any]

    @classmethod
    def of(cls, evidence: Evidence) -> RefusedMessages | None:
        rows = [row for row in evidence.incidents if row["incident"] == "refused"]
        if not rows:
            return None
        return cls({"messages": len(rows), "first": f"{rows[0]['node']} refused {rows[0]['detail']}"})

    def lines(self, summary: Summary) -> list[str]:
        messages, first = self.value["messages"], self.value["first"]
        introduced = f"the first: {first}" if messages > 1 else first
        return [f"REFUSED: {counted(messages, 'message')}; {introduced}"]
