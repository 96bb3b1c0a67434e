"""Names in words: the nearest one to a name that does not exist, lists of names, and names of folders."""

from __future__ import annotations

import re
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


def sentence(text: str) -> str:
    """Return a text that begins a sentence: its first letter is a capital."""
    return text[:1].upper() + text[1:]


def slug(label: str) -> str:
    """Return a label as a folder's name."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "-", label).strip("-") or "all"
