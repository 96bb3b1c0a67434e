"""Whose messages were far from the rest, where a robust rule combined them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.base.amounts import counted
from heterophony.base.wording import listed
from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.ledger import sender_in

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary

MOST = 5  # names in a line


@dataclass(frozen=True)
class Doubted(Finding):
    """How many messages of each sender were far from the rest, most first."""

    key = "doubted"
    value: dict[str, int]

    @classmethod
    def of(cls, evidence: Evidence) -> Doubted | None:
        rows = [row["detail"] for row in evidence.incidents if row["incident"] == "doubted"]
        senders = Counter(map(sender_in, rows))
        return cls(dict(senders.most_common())) if senders else None

    def lines(self, summary: Summary) -> list[str]:
        who = listed([f"{sender} ({counted(n, 'message')})" for sender, n in self.value.items()], MOST)
        return [f"DOUBTED: far from the rest was what came of {who}; `heterophony ledger` has each"]
