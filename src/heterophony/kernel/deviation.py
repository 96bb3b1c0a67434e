"""Where a method differs from its paper."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    """One point at which a method differs from its paper, or from the authors' code.

    A method's file lists its own in `DEVIATIONS = (Deviation(...), ...)`. `heterophony methods NAME`, the method's page
    and the page of all deviations are made from them.
    """

    where: str
    """The place: an equation, a section, or a word such as "evaluation"."""

    ours: str
    """What we do there."""

    why: str
    """The reason, with what the paper or its code does."""
