"""What a method's options mean.

An option says it itself: `rate: Annotated[float, "how far a step goes"] = 0.1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, is_dataclass
from typing import Any, get_type_hints

from heterophony.catalogue.registry import Entry

RAMP = "or { start = 0.9, stop = 0.5, over = 100 }, which changes over so many rounds"
BY_NODE = "may differ by node"


@dataclass(frozen=True)
class Option:
    """One line of a table of options."""

    name: str
    default: Any
    note: str


def described(entry: Entry) -> list[Option]:
    """Return all options of a method, with what they say of themselves."""
    found = []
    for name, (hint, default) in entry.options().items():
        texts = [meaning(entry, name), _choices(hint), BY_NODE if "dict[str" in str(hint) else ""]
        found.append(Option(name, default, "; ".join(filter(None, texts))))
    return found


def meaning(entry: Entry, name: str) -> str:
    """Return what an option says of itself; empty if it says nothing. `local.steps` is said by `Training`."""
    own = {**notes(entry.base), **notes(entry.make)}
    if name in own:
        return own[name]
    outer, _, inner = name.partition(".")
    part = entry.parts().get(outer, (None, None))[1]
    return notes(type(part)).get(inner, "") if inner and is_dataclass(part) else ""


def _choices(hint: Any) -> str:
    """Return what an option of this type may be, where that is a choice or may change over rounds."""
    words = dict.fromkeys(re.findall(r"'([^']*)'", str(hint))) if "Literal" in str(hint) else {}
    if words:
        return f"one of {', '.join(words)}"
    return RAMP if "Ramp" in str(hint) else ""


def notes(thing: Any) -> dict[str, str]:
    """Return what the fields of a class, or the parameters of a function, say of themselves."""
    try:
        hints = get_type_hints(thing, include_extras=True)
    except (NameError, TypeError):  # an object that can be called, or names that nothing stands for
        return {}
    said = {}
    for name, hint in hints.items():
        texts = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)]
        if texts:
            said[name] = texts[0]
    return said
