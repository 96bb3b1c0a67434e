"""Measures of a set of updates: their sizes, and how far they agree (B-HFL, Section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heterophony.kernel.message import Message
from heterophony.kernel.work import Named, Note, Steps
from heterophony.parts.aggregate import dot, mean


def norm(update: Named) -> float:
    """Return the Euclidean length over all names."""
    return math.sqrt(float(dot(update, update)))


def cosine(updates: Sequence[Named]) -> float | None:
    """Return the mean cosine over all pairs; None where fewer than two updates have a length.

    |sum of unit vectors|^2 is their number plus twice the sum over pairs, so that no pair need be looked at.
    """
    lengths = [norm(update) for update in updates]
    units = [(update, length) for update, length in zip(updates, lengths, strict=True) if length > 0]
    n = len(units)
    if n < 2:
        return None
    total = {name: sum(update[name] / length for update, length in units) for name in updates[0]}
    return (float(dot(total, total)) - n) / (n * (n - 1))  # type: ignore[arg-type]


def observe(updates: Sequence[Named], shares: Sequence[float] | None, mail: Sequence[Message]) -> Steps:
    """Note what is about to be merged: the pseudo-gradient's norm, how far updates agree, how stale they are."""
    yield Note("pseudo-gradient.norm", norm(mean(updates, shares)))
    agreement = cosine(updates)
    if agreement is not None:
        yield Note("cosine", agreement)
    yield Note("staleness", sum(m.staleness for m in mail), len(mail))
