"""What a model's outputs are worth on one set: sums and counts, so that sets are pooled by adding both."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BINS = 15  # of the calibration error

Scores = dict[str, tuple[float | None, int]]


def score(logits: Tensor, labels: Tensor) -> Scores:
    """Return by quantity a sum and an n, whose quotient is the figure: accuracy, top5, loss, macro-F1 and calibration.

    `top5` is there only with more than five classes. F1 is summed over the classes that occur in `labels`, so its n
    is their number; all other n are rows. Pooled F1 and calibration are means of the sets' own, by classes and by rows.
    Of sequences, logits (N, C, L) and labels (N, L), every place counts as a row.
    A sum is None where it is not finite; where a row has no softmax (a NaN, say) there is no prediction, and all are.
    """
    if logits.ndim == 3 and labels.shape == (logits.shape[0], logits.shape[2]):
        logits, labels = logits.movedim(1, -1).flatten(0, -2), labels.flatten()
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
