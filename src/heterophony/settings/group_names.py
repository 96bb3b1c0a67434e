"""What participants are called whose rows are whole groups: after their groups, where these have fit names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

_TAKEN = {"server", "client", "peer", "root", "inner", "leaf"}  # ids and roles of nodes that may stand beside them
_LONGEST = 40


def group_names(groups: Sequence[np.ndarray[Any, Any]], column: str | None) -> list[str]:
    """Return a name for each participant; `groups` are the groups of its rows, `column` tells whose each row is.

    None at all come back where two would be called alike, or one has letters that ids of nodes cannot have.
    """
    stem = PurePosixPath(column or "").stem
    word = _plain(re.sub(r"_?(train|all)_?$|^train_", "", stem)) or "group"
    parts = [[_name(str(group), word) for group in np.unique(own)] for own in groups]
    names = [_joined(own, word) for own in parts]
    if any(not name or len(name) > _LONGEST for name in names):
        return []
    return names if len({name.lower() for name in names}) == len(names) else []  # files may not tell A from a


def _name(group: str, word: str) -> str:
    """Return a group's name as an id. Whole levels are called 0 and 1, so a number gets the column's name in front."""
    plain = _plain(group)
    free = plain[:1].isalpha() and plain.lower() not in _TAKEN and not re.fullmatch(r"edge-?\d*", plain.lower())
    return plain if free or not plain else f"{word}-{plain}"


def _joined(names: Sequence[str], word: str) -> str:
    """Return one name for a participant of several groups; empty where one of them has none."""
    if not names or not all(names):
        return ""
    first, *others = names
    if not others:
        return first
    rest = others[0].removeprefix(f"{word}-") if len(others) == 1 else f"{len(others)}-more"
    return f"{first}-and-{rest}"


def _plain(text: str) -> str:
    """Return a text without accents, spaces, brackets and quotes; empty: it has letters that ids cannot have."""
    bare = "".join(part for part in unicodedata.normalize("NFKD", text.strip()) if not unicodedata.combining(part))
    plain = re.sub(r"[\s/(),&+]+", "-", re.sub(r"['\u2019`\"]", "", bare)).rstrip("-")
    return plain if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", plain) else ""
