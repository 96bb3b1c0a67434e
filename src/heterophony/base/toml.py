"""TOML: a file that is read, or refused in one line that names it; and text that is written."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def text(path: Path, error: type[ValueError]) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as cause:
        raise error(f"{path}: {(cause.strerror or str(cause)).lower()}") from None
    except UnicodeDecodeError:
        raise error(f"{path}: not a text file in UTF-8") from None


def parsed(text: str, where: str | Path, error: type[ValueError]) -> dict[str, Any]:
    """What a text says."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise error(f"{where}: not TOML: {cause}") from None


def written(table: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """A nested table as a file, with comments behind keys, which have their whole names there; None is left out."""
    return "\n".join(_lines(table, comments or {}, ())).strip() + "\n"


def _lines(table: Mapping[str, Any], comments: Mapping[str, str], path: tuple[str, ...]) -> list[str]:
    lines, inner = [], []
    for name, item in table.items():
        if isinstance(item, Mapping):
            below, tables = (*path, key(name)), [isinstance(part, Mapping) for part in item.values()]
            head = [] if tables and all(tables) else ["", f"[{'.'.join(below)}]"]
            inner += [*head, *_lines(item, comments, below)]
        elif item is not None:
            note = comments.get(".".join((*path, name)))
            lines.append(f"{key(name)} = {value(item)}" + (f"  # {note}" if note else ""))
    return lines + inner


def key(name: str) -> str:
    """A key, quoted where it must be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else value(name)


def value(item: Any) -> str:
    """A value on one line."""
    match item:
        case bool():
            return str(item).lower()
        case float() if not math.isfinite(item):
            return str(item)  # inf, -inf, nan: as TOML has them
        case int() | float():
            return repr(item)
        case str():
            # JSON's strings are TOML's, but for one character that must be escaped here
            return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return "[" + ", ".join(map(value, item)) + "]"
        case Mapping():
            return "{ " + ", ".join(f"{key(str(k))} = {value(v)}" for k, v in item.items()) + " }" if item else "{}"
    raise ValueError(f"{item!r} cannot be written as TOML")
