"""How well each participant's language model predicts its own text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.tables.clients import own
from heterophony.tables.levels import LOSS, perplexity

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Perplexities(Finding):
    """Each participant's perplexity on its own data; None where its loss is no number."""

    key = "perplexity"
    value: dict[str, float | None]

    @classmethod
    def of(cls, evidence: Evidence) -> Perplexities | None:
        if not evidence.recipe.get("sequences"):
            return None
        losses = own(evidence.table, evidence.homes, evidence.product, LOSS)
        return cls({name: perplexity(loss) for name, loss in losses.items()})

    def lines(self, summary: Summary) -> list[str]:
        known = [value for value in self.value.values() if value is not None]
        if not known:
            return []
        mean = math.exp(math.fsum(map(math.log, known)) / len(known))
        span = f"from {min(known):.2f} to {max(known):.2f}"
        return [f"perplexity on their own data: {span}, geometric mean {mean:.2f}"]
