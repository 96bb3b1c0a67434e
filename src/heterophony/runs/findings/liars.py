"""Who lied in a run, where a setting or a federation has an attack, and how far a backdoor opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.base.wording import listed
from heterophony.runs.findings.finding import Evidence, Finding

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary

MOST = 5  # names in a line


@dataclass(frozen=True)
class Liars(Finding):
    """The attack: `who` lied, `how` and `since` which round; `success` is how often a trigger was believed in the end.

    The success is that of the honest participants' models, or of a server's.
    """

    key = "attack"
    value: dict[str, Any]

    @classmethod
    def of(cls, evidence: Evidence) -> Liars | None:
        told = evidence.spec.get("attack")
        if told is None:
            return None
        rows = evidence.table.select(product=evidence.product, split="backdoor", quantity="accuracy").last()
        honest = [row for row in rows.rows if row["node"] not in told["who"] and row["n"]]
        if not honest or any(row["sum"] is None for row in honest):
            return cls(dict(told))
        success = sum(row["sum"] for row in honest) / sum(row["n"] for row in honest)
        return cls({**told, "success": success})

    def lines(self, summary: Summary) -> list[str]:
        told = self.value
        since = f" from round {told['since']} on" if told["since"] else ""
        success = f"; the trigger was believed in {told['success']:.1%} of rows" if "success" in told else ""
        return [f"ATTACK: {told['how']} by {listed(told['who'], MOST)}{since}{success}"]
