"""Bytes without pickle: plain values as JSON, tensors as safetensors.

Layout: magic (4 bytes), length of the JSON part (4 bytes, little endian), JSON, safetensors block.
Plain values are None, bool, int, float, str, list, tuple, dict with string keys, and tensors. Nothing else
can be written, and reading builds nothing else, so a byte string can never run code.
"""

from __future__ import annotations

import json
import math
import struct
from functools import lru_cache
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

MAGIC = b"HPH1"
_TAG = "$"  # the one reserved dictionary key: it marks a tensor or a tuple
_PREFIX = struct.Struct("<4sI")
_BLOCK = struct.Struct("<Q")  # the length of safetensors' own header
_ALIGNED = 64  # bytes: where torch lets its own tensors begin
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class Malformed(ValueError):
    """Bytes that are no value of ours."""


def pack(value: Any) -> bytes:
    """The bytes of a value; `unpack` gives the value back, tensors to the bit."""
    header, tensors = _header(value)
    block = safetensors.torch.save(_separate(tensors)) if tensors else b""
    return _PREFIX.pack(MAGIC, len(header)) + header + block


def packed_size(value: Any) -> int:
    """`len(pack(value))`, without copying a tensor or writing a header: every message is asked for it."""
    tensors: list[Tensor] = []
    header = _size(value, tensors)
    return _PREFIX.size + header + _block_size(tuple([(t.dtype, t.shape) for t in tensors]))


def unpack(data: bytes | memoryview, limit: int | None = None, header_limit: int | None = None) -> Any:
    """The value that `pack` wrote; anything else raises `Malformed`.

    Memory is in proportion to the data, whatever they claim. Limits are for data from elsewhere.
    """
    if limit is not None and len(data) > limit:
        raise Malformed(f"{len(data)} bytes, the limit is {limit}")
    if len(data) < _PREFIX.size:
        raise Malformed("too short")
    magic, length = _PREFIX.unpack_from(data)
    start, end = _PREFIX.size, _PREFIX.size + length
    if magic != MAGIC or end > len(data):
        raise Malformed("not a heterophony message or snapshot, or cut short")
    if header_limit is not None and length > header_limit:
        raise Malformed(f"a header of {length} bytes, the limit is {header_limit}")
    if header_limit is not None and len(data) >= end + _BLOCK.size:
        # Tensors have a header of their own, an entry of which takes less than eight times what names it in ours. Each
        # becomes an object, however empty it is.
        (names,) = _BLOCK.unpack_from(data, end)
        if names > 8 * header_limit:
            raise Malformed(f"a header of tensors of {names} bytes, the limit is {8 * header_limit}")
    try:
        text = bytes(data[start:end]).decode()
        header = json.loads(text)
        if "\\u" in text:  # an escape can write half a character, which nobody could write again
            _JSON.encode(header).encode()
        loaded = safetensors.torch.load(bytes(data[end:])) if end < len(data) else {}
        block = {key: _aligned(tensor) for key, tensor in loaded.items()}
        value = _value(header, block)
    except Malformed:
        raise
    except Exception as error:  # json, safetensors (its own class), RecursionError: all mean the same here
        raise Malformed(f"unreadable: {type(error).__name__}") from error
    if block:
        raise Malformed(f"{len(block)} tensors that the header does not name")
    return value


def contiguous(value: Any) -> Any:
    """The value with its tensors laid out as `unpack` would give them: layout must not depend on a snapshot."""
    match value:
        case Tensor():
            return value.contiguous()
        case list():
            return [contiguous(item) for item in value]
        case tuple():
            return tuple(contiguous(item) for item in value)
        case dict():
            return {key: contiguous(item) for key, item in value.items()}
    return value


def _header(value: Any) -> tuple[bytes, list[Tensor]]:
    tensors: list[Tensor] = []
    header = _JSON.encode(_plain(value, tensors)).encode()
    return header, tensors


def _plain(value: Any, tensors: list[Tensor]) -> Any:
    match value:
        case Tensor():
            tensors.append(value)
            return {_TAG: len(tensors) - 1}
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_plain(item, tensors) for item in value]
        case tuple():
            return {_TAG: [_plain(item, tensors) for item in value]}
        case dict():
            for key in value:
                if not isinstance(key, str) or key == _TAG:
                    raise TypeError(f"a key must be a string other than {_TAG!r}, got {key!r}")
            return {key: _plain(item, tensors) for key, item in value.items()}
        case _:
            raise TypeError(f"cannot write a {type(value).__name__}: only plain values and tensors")


def _size(value: Any, tensors: list[Tensor]) -> int:
    """The length of the JSON of `_plain(value)`."""
    if isinstance(value, str):
        return _length(value)
    if type(value) is int:
        return len(str(value))
    if type(value) is float and math.isfinite(value):
        return len(repr(value))
    if isinstance(value, Tensor):
        tensors.append(value)
        return len(_TAG) + 5 + len(str(len(tensors) - 1))  # {"$":0}
    if isinstance(value, list | tuple):
        tag = 0 if isinstance(value, list) else len(_TAG) + 5  # {"$":[...]}
        return tag + 2 + max(0, len(value) - 1) + sum(_size(item, tensors) for item in value)
    if isinstance(value, dict):
        names, items = tuple(value), list(value.values())
        if not _proper(names):
            _plain(value, tensors)  # says which
        if all(isinstance(item, Tensor) for item in items):
            tensors += items
            return _named(names, len(tensors) - len(items))
        size = _keys(names)
        for item in items:
            size += _size(item, tensors)
        return size
    return len(_JSON.encode(_plain(value, tensors)))


@lru_cache(maxsize=4096)
def _proper(names: tuple[Any, ...]) -> bool:
    """Whether a dictionary's keys may be written."""
    return all(isinstance(name, str) and name != _TAG for name in names)


@lru_cache(maxsize=4096)
def _keys(names: tuple[str, ...]) -> int:
    """The length of a dictionary without its values."""
    return 2 + max(0, len(names) - 1) + sum(map(_length, names)) + len(names)


@lru_cache(maxsize=4096)
def _named(names: tuple[str, ...], first: int) -> int:
    """The length of named tensors, counted from `first`."""
    return len(_JSON.encode({name: {_TAG: first + i} for i, name in enumerate(names)}).encode())


@lru_cache(maxsize=4096)
def _length(text: str) -> int:
    return len(_JSON.encode(text).encode())


def _value(header: Any, block: dict[str, Tensor]) -> Any:
    if isinstance(header, list):
        return [_value(item, block) for item in header]
    if not isinstance(header, dict):
        return header
    if _TAG not in header:
        return {key: _value(item, block) for key, item in header.items()}
    tag = header[_TAG]
    if len(header) != 1:
        raise Malformed("a tag beside other keys")
    if isinstance(tag, list):
        return tuple(_value(item, block) for item in tag)
    if str(tag) not in block:
        raise Malformed(f"no tensor {tag!r}")
    return block.pop(str(tag))  # popped: a tensor named twice would let a short message grow


def _aligned(tensor: Tensor) -> Tensor:
    """The tensor where torch would have put it: products of what begins between two words round otherwise."""
    return tensor if tensor.data_ptr() % _ALIGNED == 0 else tensor.clone()


def _separate(tensors: list[Tensor]) -> dict[str, Tensor]:
    """Tensors on the CPU that own their storage: safetensors refuses views and tied weights."""
    owned: dict[str, Tensor] = {}
    seen: set[int] = set()
    for position, tensor in enumerate(tensors):
        flat = tensor.detach().cpu().contiguous()
        pointer = flat.untyped_storage().data_ptr()
        if pointer in seen or flat.untyped_storage().nbytes() != flat.nbytes:
            flat = flat.clone()
        seen.add(pointer)
        owned[str(position)] = flat
    return owned


@lru_cache(maxsize=1024)
def _block_size(signature: tuple[tuple[torch.dtype, tuple[int, ...]], ...]) -> int:
    # Asking safetensors once per signature keeps the size exact whatever its header looks like.
    if not signature:
        return 0
    return len(safetensors.torch.save({str(i): torch.zeros(s, dtype=d) for i, (d, s) in enumerate(signature)}))
