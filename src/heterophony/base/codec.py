"""Bytes without pickle: plain values as JSON, tensors as safetensors.

Layout: magic (4 bytes), length of the JSON part (4 bytes, little endian), JSON, safetensors block.
Plain values are None, bool, int, float, str, list, tuple, dict with string keys, and tensors. Nothing else can be
written. Reading builds nothing else. So a byte string can never run code.
"""

from __future__ import annotations

import hashlib
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


TensorForm = tuple[torch.dtype, tuple[int, ...]]


class Malformed(ValueError):
    """Bytes that are no value of ours."""


def pack(value: Any) -> bytes:
    """Return the bytes of a value. `unpack` gives the value back, tensors to the bit."""
    header, tensors = _header(value)
    block = safetensors.torch.save(_separate(tensors)) if tensors else b""
    return _PREFIX.pack(MAGIC, len(header)) + header + block


def packed_size(value: Any) -> int:
    """Return `len(pack(value))`. It copies no tensor and writes no header, because every message is asked for it."""
    forms: list[TensorForm] = []
    header = _size(value, forms)
    return _PREFIX.size + header + _block_size(tuple(forms))


def text_size(text: str) -> int:
    """Return the bytes that a text takes in what `pack` returns."""
    return _length(text)


def fingerprint(value: Any) -> bytes:
    """Return a hash of what `pack` would write, without writing it: equal values have equal ones, others never do."""
    header, tensors = _header(value)
    made = hashlib.sha256(header)
    for tensor in tensors:
        made.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous()
        if flat.numel():
            made.update(flat.reshape(-1).view(torch.uint8).numpy().data)
    return made.digest()


def unpack(data: bytes | memoryview, limit: int | None = None, header_limit: int | None = None) -> Any:
    """Return the value that `pack` wrote. Raise `Malformed` for anything else.

    The memory that this takes is in proportion to the data, whatever the data claim. Limits are for data from other
    machines: `limit` for all bytes, `header_limit` for the JSON part.
    """
    if limit is not None and len(data) > limit:
        raise Malformed(f"{len(data)} bytes, the limit is {limit}")
    end = _header_end(data)
    if header_limit is not None:
        _check_headers(data, end, header_limit)
    try:
        text = bytes(data[_PREFIX.size : end]).decode()
        header = json.loads(text)
        if "\\u" in text:  # an escape can write half a character, which nobody could encode again
            _JSON.encode(header).encode()
        loaded = safetensors.torch.load(bytes(data[end:])) if end < len(data) else {}
        block = {key: _aligned(tensor) for key, tensor in loaded.items()}
        value = _value(header, block)
    except Malformed:
        raise
    except Exception as error:  # of json, of safetensors (its own class), RecursionError: all mean the same here
        raise Malformed(f"unreadable: {type(error).__name__}") from error
    if block:
        raise Malformed(f"{len(block)} tensors that the header does not name")
    return value


def _header_end(data: bytes | memoryview) -> int:
    """Return where the JSON part ends; raise `Malformed` if these bytes are none of ours."""
    if len(data) < _PREFIX.size:
        raise Malformed("too short")
    magic, length = _PREFIX.unpack_from(data)
    end: int = _PREFIX.size + length
    if magic != MAGIC or end > len(data):
        raise Malformed("not a heterophony message or snapshot, or cut short")
    return end


def _check_headers(data: bytes | memoryview, end: int, limit: int) -> None:
    """Raise `Malformed` if the JSON part, or the header of the tensors behind it, is too long."""
    length = end - _PREFIX.size
    if length > limit:
        raise Malformed(f"a header of {length} bytes, the limit is {limit}")
    if len(data) < end + _BLOCK.size:
        return
    # The block of tensors has a header of its own. An entry there takes less than eight times what names the tensor
    # in our header. Each entry becomes an object, however empty it is, so their number is limited.
    (names,) = _BLOCK.unpack_from(data, end)
    if names > 8 * limit:
        raise Malformed(f"a header of tensors of {names} bytes, the limit is {8 * limit}")


def contiguous(value: Any) -> Any:
    """Return the value with its tensors laid out as `unpack` would give them.

    Sums may depend on the layout, and must not depend on whether a snapshot was taken.
    """
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
    """Return the JSON part of a value, and its tensors in the order in which the JSON names them."""
    tensors: list[Tensor] = []
    header = _JSON.encode(_plain(value, tensors)).encode()
    return header, tensors


def _plain(value: Any, tensors: list[Tensor]) -> Any:
    """Return a value as JSON can say it. Tensors are added to `tensors`, and become numbers of places there."""
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


def _size(value: Any, forms: list[TensorForm]) -> int:
    """Return the length of the JSON of `_plain(value)`, without making it. Tensors' forms are added to `forms`."""
    if isinstance(value, str):
        return _length(value)
    if type(value) is int:
        return len(str(value))
    if type(value) is float and math.isfinite(value):
        return len(repr(value))
    if isinstance(value, dict):
        return _size_of_dict(value, forms)
    if isinstance(value, (list, tuple)):
        tag = 0 if isinstance(value, list) else len(_TAG) + 5  # {"$":[...]}
        return tag + 2 + max(0, len(value) - 1) + sum([_size(item, forms) for item in value])
    if isinstance(value, Tensor):
        forms.append((value.dtype, value.shape))
        return len(_TAG) + 5 + len(str(len(forms) - 1))  # {"$":0}
    return len(_JSON.encode(_plain(value, [])))


def _size_of_dict(value: dict[Any, Any], forms: list[TensorForm]) -> int:
    described = getattr(value, "described", None)  # names and forms, where it knows them without being looked into
    if described is not None:
        forms += described[1]
        return _named(described[0], len(forms) - len(described[1]))
    names, items = tuple(value), list(value.values())
    if not _proper(names):
        _plain(value, [])  # says which
    if all(isinstance(item, Tensor) for item in items):
        forms += [(item.dtype, item.shape) for item in items]
        return _named(names, len(forms) - len(items))
    size = _keys(names)
    for item in items:
        size += _size(item, forms)
    return size


@lru_cache(maxsize=4096)
def _proper(names: tuple[Any, ...]) -> bool:
    """Tell whether a dictionary's keys may be written."""
    return all(isinstance(name, str) and name != _TAG for name in names)


@lru_cache(maxsize=4096)
def _keys(names: tuple[str, ...]) -> int:
    """Return the length of a dictionary without its values."""
    braces, commas, colons = 2, max(0, len(names) - 1), len(names)
    return braces + commas + colons + sum(map(_length, names))


@lru_cache(maxsize=4096)
def _named(names: tuple[str, ...], first: int) -> int:
    """Return the length of a dictionary of tensors, the first of which has the number `first`."""
    return len(_JSON.encode({name: {_TAG: first + i} for i, name in enumerate(names)}).encode())


@lru_cache(maxsize=4096)
def _length(text: str) -> int:
    """Return the length of a text in JSON, quotes included."""
    return len(_JSON.encode(text).encode())


def _value(header: Any, block: dict[str, Tensor]) -> Any:
    """Return the value that `_plain` has made JSON of. Its tensors are taken out of `block`."""
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
    """Return the tensor, or a copy of it that begins where torch would let it begin.

    Products of tensors that begin elsewhere round differently.
    """
    return tensor if tensor.data_ptr() % _ALIGNED == 0 else tensor.clone()


def _separate(tensors: list[Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU, each with a storage of its own: safetensors refuses views and tied weights."""
    separate: dict[str, Tensor] = {}
    seen: set[int] = set()
    for position, tensor in enumerate(tensors):
        flat = tensor.detach().cpu().contiguous()
        if flat.untyped_storage().nbytes() != flat.nbytes:
            flat = _cut_out(flat)
        if flat.data_ptr() in seen:
            flat = flat.clone()
        seen.add(flat.data_ptr())
        separate[str(position)] = flat
    return separate


def _cut_out(part: Tensor) -> Tensor:
    """Return the same memory as a tensor that knows nothing of the whole of which it is a part: nothing is copied.

    A message's weights are parts of one tensor, so that a copy of each would be a copy of the message.
    """
    if not part.numel():
        return part.clone()
    content = part.reshape(-1).view(torch.uint8).numpy()
    return torch.from_numpy(content).view(part.dtype).view(part.shape)


@lru_cache(maxsize=1024)
def _block_size(signature: tuple[TensorForm, ...]) -> int:
    """Return the length of safetensors' block of tensors of these dtypes and shapes.

    Safetensors is asked once for each signature, so the size is exact whatever its header looks like.
    """
    if not signature:
        return 0
    tensors = {str(place): torch.zeros(shape, dtype=dtype) for place, (dtype, shape) in enumerate(signature)}
    return len(safetensors.torch.save(tensors))
