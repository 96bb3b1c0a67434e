"""JSON that carries its own checksum, so that a figure that somebody or something has changed is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEY = "sha256"  # the last one of an object
_BLANK = "0" * 64


def sealed(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """The object as a text that ends with its checksum: that of the same text with noughts in its place."""
    head, blank, tail = (json.dumps({**value, KEY: _BLANK}, indent=indent) + "\n").rpartition(_BLANK)
    return f"{head}{digest(f'{head}{blank}{tail}'.encode())}{tail}".encode()


def opened(data: bytes) -> tuple[dict[str, Any], bool]:
    """The object, and whether it carried a checksum, which is right then. Anything else is a ValueError that says why.

    What was written before there were checksums carries none.
    """
    try:
        value = json.loads(data)
    except ValueError:
        raise ValueError("it is no JSON") from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    said = value.pop(KEY, None)
    if said is None:
        return value, False
    head, found, tail = data.rpartition(str(said).encode())
    if not found or digest(head + _BLANK.encode() + tail) != said:
        raise ValueError("its checksum differs")
    return value, True


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
