"""What is said of a name that does not exist: the nearest one, and what there is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

MOST = 24  # names that are listed


def meant(name: str, known: Iterable[str]) -> str:
    """`, perhaps you meant 'mnist'`; nothing where no name is near."""
    near = get_close_matches(name, list(known), n=1)
    return f", perhaps you meant {near[0]!r}" if near else ""


def listed(names: Collection[str], most: int = MOST) -> str:
    """Names by commas; of very many the first, and how many more there are."""
    shown = ", ".join(list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
