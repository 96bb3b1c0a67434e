"""TOML: read a file, or refuse it in one line that names it; write a table as text."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def text(path: Path, error: type[ValueError]) -> str:
    """Return the text of a file. Raise `error` with one line that names the file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as cause:
        raise error(f"{path}: {(cause.strerror or str(cause)).lower()}") from None
    except UnicodeDecodeError:
        raise error(f"{path}: not a text file in UTF-8") from None


def parsed(text: str, where: str | Path, error: type[ValueError]) -> dict[str, Any]:
    """Return what a text says. Raise `error` with one line that names `where` it stands."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise error(f"{where}: not TOML: {cause}") from None


def written(table: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return a nested table as the text of a file. Values that are None are left out.

    `comments` are by whole key ("data.clients"), and stand behind the key's value.
    """
    return "\n".join(_lines(table, comments or {}, ())).strip() + "\n"


def _lines(table: Mapping[str, Any], comments: Mapping[str, str], path: tuple[str, ...]) -> list[str]:
    """Return the lines of a table that stands at this path: its own values first, then the tables in it."""
    lines: list[str] = []
    inner: list[str] = []
    for name, item in table.items():
        if isinstance(item, Mapping):
            below = (*path, key(name))
            only_tables = bool(item) and all(isinstance(part, Mapping) for part in item.values())
            if not only_tables:  # otherwise the heads of the tables in it say enough
                inner += ["", f"[{'.'.join(below)}]"]
            inner += _lines(item, comments, below)
        elif item is not None:
            note = comments.get(".".join((*path, name)))
            lines.append(f"{key(name)} = {value(item)}" + (f"  # {note}" if note else ""))
    return lines + inner


def key(name: str) -> str:
    """Return a key, quoted where it must be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else value(name)


def value(item: Any) -> str:
    """Return a value on one line. Raise ValueError for what TOML has no form for."""
    match item:
        case bool():
            return str(item).lower()
        case float() if not math.isfinite(item):
            return str(item)  # inf, -inf, nan: as TOML has them
        case int() | float():
            return repr(item)
        case str():
            # A string of JSON is one of TOML, except for one character, which TOML wants escaped.
            return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return "[" + ", ".join(map(value, item)) + "]"
        case Mapping():
            if not item:
                return "{}"
            return "{ " + ", ".join(f"{key(str(name))} = {value(part)}" for name, part in item.items()) + " }"
    raise ValueError(f"{item!r} cannot be written as TOML")
