"""What comes next, at each place of a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from heterophony.tasks.classification import SCORES, ce, kl, label_sums, labels_misfit
from heterophony.tasks.score import Pairs, Score, Sums, quotient

if TYPE_CHECKING:
    from torch import Tensor


def _perplexity(pairs: Pairs) -> float:
    """Return the exponential of the mean loss, kept below what a float can hold."""
    return math.exp(min(quotient(pairs), 700.0))


PERPLEXITY = Score("perplexity", ("loss",), _perplexity, higher=False, percent=False)


@dataclass(frozen=True)
class Sequence:
    """Labels `y` (N, L), one at each place, of so many `classes` (bytes, tokens); outputs are logits (N, classes, L).

    Scores are those of classification, where each place counts as a row, and perplexity.
    """

    classes: int
    kind: ClassVar[str] = "sequence"
    term: ClassVar[str] = "ce"

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def scores(self) -> tuple[Score, ...]:
        return (*SCORES, PERPLEXITY)

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return (self.classes, row[-1])

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        """Say what is wrong with labels: they are whole numbers, one for each place."""
        if y.ndim != 2 or y.shape[0] != rows[0] or y.shape[1] != rows[-1]:
            return f"each of {rows[-1]} places of a row needs a label, the labels have the shape {tuple(y.shape)}"
        return labels_misfit(y, self.classes)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy with the labels: mean over all places of all rows."""
        return ce(outputs, y)

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return KL(teacher || student): summed over classes, mean over places."""
        return kl(teacher, student)

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        """Return what the scores need; each place counts as a row."""
        return label_sums(outputs[:, : self.classes], y)
