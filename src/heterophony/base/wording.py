"""What errors say of a name that does not exist: the nearest name, and which names there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

MOST = 24  # at most so many names are listed


def meant(name: str, known: Iterable[str]) -> str:
    """Return `, perhaps you meant 'mnist'`, or nothing if no name is near."""
    near = get_close_matches(name, list(known), n=1)
    return f", perhaps you meant {near[0]!r}" if near else ""


def listed(names: Collection[str], most: int = MOST) -> str:
    """Return names with commas. Of very many, return the first and how many more there are."""
    shown = ", ".join(list(names)[:most])
    if len(names) <= most:
        return shown
    return f"{shown} and {len(names) - most} more"
