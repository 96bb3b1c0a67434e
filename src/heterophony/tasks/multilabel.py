"""Several yes-or-no labels for each row; with one label, a binary task by one logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from heterophony.base.later import later
from heterophony.tasks.score import ACCURACY, Score, Sums, finite

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    later(globals(), torch="torch", F="torch.nn.functional")

SCORES = (
    ACCURACY,
    Score("auroc", title="AUROC within test sets"),
    Score("f1", title="macro-F1"),
    Score("exact", title="all labels right"),
    Score("loss", higher=False, percent=False),
)


@dataclass(frozen=True)
class MultiLabel:
    """Labels `y` (N, labels), each 0 or 1; outputs are logits (N, labels), and above 0 means yes.

    With one label `y` may be (N,). AUROC counts pairs of a row with and a row without a label within one test set: the
    share of pairs in which the row with it has the larger logit, and half of those in which both are equal.
    """

    labels: int
    kind: ClassVar[str] = "multilabel"
    term: ClassVar[str] = "bce"

    def __post_init__(self) -> None:
        if self.labels < 1:
            raise ValueError(f"multilabel needs labels >= 1, got {self.labels}")

    @property
    def classes(self) -> None:
        return None

    @property
    def outputs(self) -> int:
        return self.labels

    @property
    def scores(self) -> tuple[Score, ...]:
        """Accuracy over all labels of all rows; AUROC; F1, mean over labels; rows with all labels right; the loss."""
        return SCORES

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return (self.labels,)

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        """Say what is wrong with labels: each is 0 or 1, so many for each row."""
        if tuple(y.shape) != (rows[0], self.labels) and not (self.labels == 1 and tuple(y.shape) == rows[:1]):
            return f"{self.labels} labels for each of {rows[0]} rows are needed, they have the shape {tuple(y.shape)}"
        wrong = ((y != 0) & (y != 1)).reshape(len(y), -1).any(1).nonzero()
        return f"row {int(wrong[0])} has a label that is not 0 or 1" if len(wrong) else None

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the binary cross-entropy: mean over rows and labels."""
        return F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype).view(outputs.shape))

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return KL of each label's two outcomes: mean over rows and labels."""
        target = teacher.detach()
        yes = target.sigmoid() * (F.logsigmoid(target) - F.logsigmoid(student))
        no = (-target).sigmoid() * (F.logsigmoid(-target) - F.logsigmoid(-student))
        return (yes + no).mean()

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        """Return what the scores need."""
        if outputs.ndim != 2 or y.numel() != outputs.numel():
            raise ValueError(
                f"expected logits and labels (N, {self.labels}), got {tuple(outputs.shape)} and {tuple(y.shape)}"
            )
        logits = outputs.detach().double()
        there = y.reshape(outputs.shape) > 0.5
        rows, labels = logits.shape
        right = (logits > 0) == there
        loss = F.binary_cross_entropy_with_logits(logits, there.double(), reduction="sum")
        pairs = [_pairs(logits[:, place], there[:, place]) for place in range(labels)]
        actual, claimed, hits = there.sum(0), (logits > 0).sum(0), (there & (logits > 0)).sum(0)
        known = actual > 0
        sums: dict[str, tuple[float, int]] = {
            "accuracy": (int(right.sum()), rows * labels),
            "auroc": (sum(won for won, _ in pairs), sum(n for _, n in pairs)),
            "f1": (float((2 * hits[known].double() / (actual + claimed)[known]).sum()), int(known.sum())),
            "exact": (int(right.all(1).sum()), rows),
            "loss": (float(loss) / labels, rows),
        }
        usable = not bool(logits.isnan().any())
        return {name: (finite(total) if usable else None, n) for name, (total, n) in sums.items()}


def _pairs(logits: Tensor, there: Tensor) -> tuple[float, int]:
    """Return in how many pairs the row with the label has the larger logit (equal ones count half), and all pairs."""
    with_label, without = logits[there], logits[~there].sort().values
    below = torch.searchsorted(without, with_label, right=False)
    not_above = torch.searchsorted(without, with_label, right=True)
    return float((below + not_above).sum()) / 2, len(with_label) * len(without)
