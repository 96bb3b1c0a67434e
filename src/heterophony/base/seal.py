"""JSON that carries its own checksum, so that a changed figure is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEY = "sha256"  # the last key of an object
_BLANK = "0" * 64  # stands in place of the checksum while it is computed


def sealed(value: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Return the object as a text that ends with its checksum.

    The checksum is that of the same text with noughts in its place.
    """
    text = json.dumps({**value, KEY: _BLANK}, indent=indent) + "\n"
    head, _, tail = text.rpartition(_BLANK)
    return f"{head}{digest(text.encode())}{tail}".encode()


def opened(data: bytes) -> tuple[dict[str, Any], bool]:
    """Return the object, and whether it carried a checksum. Raise ValueError, which says why, if the checksum is wrong.

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
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
