"""One of several classes for each row, or for each place of a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from heterophony.base.later import later
from heterophony.tasks.score import ACCURACY, Score, Sums

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    later(globals(), torch="torch", F="torch.nn.functional")

BINS = 15  # of the calibration error

SCORES = (
    ACCURACY,
    Score("top5", title="top-5 accuracy"),
    Score("loss", higher=False, percent=False),
    Score("f1", title="macro-F1"),
    Score("calibration", title="calibration error", higher=False),
)


@dataclass(frozen=True)
class Classification:
    """Labels `y` from 0, one a row; outputs are logits (N, classes).

    Labels (N, L), one for each place of a row, go with logits (N, classes, L). Without `classes` nothing checks labels.
    """

    classes: int | None = None
    kind: ClassVar[str] = "classification"
    term: ClassVar[str] = "ce"

    @property
    def outputs(self) -> int | None:
        return self.classes

    @property
    def scores(self) -> tuple[Score, ...]:
        return SCORES

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return (self.classes or 0,)

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        """Say what is wrong with labels: they are whole numbers from 0, below the number of classes."""
        if tuple(y.shape[:1]) != rows[:1] or y.ndim > 2:
            return f"one label a row is needed, {rows[0]} rows have labels of the shape {tuple(y.shape)}"
        return labels_misfit(y, self.classes)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy with the labels: mean over rows, or over all places of all rows."""
        return ce(outputs, y)

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return KL(teacher || student): summed over classes, mean over rows."""
        return kl(teacher, student)

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        """Return what the scores need. With a joint head only the outputs of the own classes count."""
        return label_sums(outputs[:, : self.classes], y)


def labels_misfit(y: Tensor, classes: int | None) -> str | None:
    """Say what is wrong with labels of classes; None: nothing is."""
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        return f"labels are whole numbers (int64), got {y.dtype}".replace("torch.", "")
    if not y.numel():
        return None
    low, high = int(y.min()), int(y.max())
    if low < 0 or (classes is not None and high >= classes):
        bound = "" if classes is None else f"..{classes - 1}"
        wrong = low if low < 0 else high
        row = int((y == wrong).reshape(len(y), -1).any(1).nonzero()[0])
        return f"row {row} has the label {wrong}; labels are 0{bound}" + (" and more" if classes is None else "")
    return None


LABELS = Classification()  # of tables and summaries that say nothing of their task


# -- losses ------------------------------------------------------------------------------------------------------
def flat(logits: Tensor) -> Tensor:
    """Return outputs with one row for each prediction.

    Those of sequences, of shape (rows, classes, places), become (rows x places, classes).
    """
    if logits.ndim <= 2:
        return logits
    return logits.movedim(1, -1).flatten(0, -2)


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy with the labels: mean over rows, or over all places of all rows."""
    if logits.ndim > 2:  # flattened: torch's own form for sequences has no GPU kernel that repeats to the bit
        labels = labels.flatten()
    return F.cross_entropy(flat(logits), labels)


def kl(teacher: Tensor, student: Tensor) -> Tensor:
    """Return KL(teacher || student) of logits: summed over classes, mean over the batch."""
    target = flat(teacher.detach()).log_softmax(-1)
    learnt = flat(student).log_softmax(-1)
    return (target.exp() * (target - learnt)).sum(-1).mean()


# -- sums --------------------------------------------------------------------------------------------------------
def label_sums(logits: Tensor, labels: Tensor) -> Sums:
    """Return by quantity a sum and an n, whose quotient is the figure: accuracy, top5, loss, macro-F1 and calibration.

    `top5` is there only with more than five classes. F1 is summed over the classes that occur in `labels`, so its n
    is their number; all other n are rows. Pooled F1 and calibration are means of the sets' own, by classes and by rows.
    Of sequences, logits (N, C, L) and labels (N, L), every place counts as a row.
    A sum is None where it is not finite; where a row has no softmax (a NaN, say) there is no prediction, and all are.
    """
    if logits.ndim > 2 and labels.shape == (logits.shape[0], *logits.shape[2:]):
        logits, labels = flat(logits), labels.flatten()
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"expected logits (N, C) and labels (N,), got {tuple(logits.shape)} and {tuple(labels.shape)}")
    rows, classes = logits.shape
    if not rows:
        return {name: (0, 0) for name in ("accuracy", "top5", "loss", "f1", "calibration") if _has(name, classes)}
    logits = logits.detach()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_p = logits.log_softmax(-1)
    guess = logits.argmax(-1)  # the first of equals
    confidence = log_p.amax(-1).exp().cpu().double()
    loss = -log_p.gather(1, labels[:, None]).cpu().double().sum()
    right = (guess == labels).cpu()
    f1, present = _f1(guess, labels, classes)
    sums: dict[str, tuple[float, int]] = {
        "accuracy": (int(right.sum()), rows),
        "top5": (_top(5, logits, labels), rows) if _has("top5", classes) else (0, 0),
        "loss": (float(loss), rows),
        "f1": (f1, present),
        "calibration": (_calibration(confidence, right), rows),
    }
    usable = not bool(confidence.isnan().any())
    return {
        name: (total if usable and math.isfinite(total) else None, n)
        for name, (total, n) in sums.items()
        if _has(name, classes)
    }


def _has(quantity: str, classes: int) -> bool:
    return quantity != "top5" or classes > 5


def _top(k: int, logits: Tensor, labels: Tensor) -> int:
    """Count the rows whose label is among the k largest logits. Of equals the first is larger, as in argmax."""
    own = logits.gather(1, labels[:, None])
    earlier = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    rank = ((logits > own) | ((logits == own) & earlier)).sum(-1)
    return int((rank < k).sum())


def _f1(guess: Tensor, labels: Tensor, classes: int) -> tuple[float, int]:
    """Return the sum of 2 TP / (2 TP + FP + FN) over the classes that occur in the labels, and their number."""
    guess, labels = guess.cpu(), labels.cpu()
    actual = labels.bincount(minlength=classes)
    claimed = guess.bincount(minlength=classes)
    hits = labels[guess == labels].bincount(minlength=classes)
    there = actual > 0
    return float((2 * hits[there].double() / (actual + claimed)[there]).sum()), int(there.sum())


def _calibration(confidence: Tensor, right: Tensor) -> float:
    """Return the sum over bins of |sum of confidence - number right|. A bin is open below and closed above."""
    edges = torch.arange(1, BINS, dtype=torch.float64) / BINS
    gaps = torch.zeros(BINS, dtype=torch.float64)
    gaps.index_add_(0, torch.bucketize(confidence, edges), confidence - right.double())
    return float(gaps.abs().sum())
