"""Who gains and who loses, against the global model of the same run or against another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables import clients
from heterophony.tasks.score import ACCURACY, Score

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Gains(Finding):
    """What is compared (`against`), and what each participant gains on its own data."""

    key = "clients"
    value: dict[str, Any]

    @classmethod
    def of(cls, evidence: Evidence) -> Gains | None:
        """Compare with the global model, where participants have models of their own beside it."""
        if evidence.product == "global":
            return None
        common = clients.own(evidence.table, evidence.homes, "global")
        if all(value is None for value in common.values()):
            return None
        mine = clients.own(evidence.table, evidence.homes, evidence.product)
        return cls.between(mine, common, "the global model", evidence.table.task.scores[0])

    @classmethod
    def between(
        cls, mine: clients.ByParticipant, theirs: clients.ByParticipant, against: str, score: Score = ACCURACY
    ) -> Gains:
        return cls({"against": against, **clients.gains(mine, theirs, score.higher)})

    def lines(self, summary: Summary) -> list[str]:
        return [clients.line(self.value, self.value["against"], summary.score)]
