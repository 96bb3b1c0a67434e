"""Pickles of strangers: plain containers and arrays of bytes, and nothing that could run code.

No class or function that a pickle names is ever looked up. The few names that an array needs are answered
with the stand-ins below, everything else is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np

from heterophony.data.errors import DataError


class _Dtype:
    """Stands in for `numpy.dtype`; only bytes are let through."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1"):
            raise DataError(f"the pickle holds an array of type {code!r}, only bytes (u1) are expected")

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands in for an array that is being put together."""

    value: np.ndarray[Any, np.dtype[np.uint8]] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or fortran or not isinstance(data, bytes):
            raise DataError("the pickle holds an array of an unexpected form")
        if len(data) != math.prod(shape):
            raise DataError(f"the pickle holds an array of shape {shape} with {len(data)} bytes")
        self.value = np.frombuffer(data, np.uint8).reshape(shape)


def _array(*_: object) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    """Encode text as bytes. Python 3 writes bytes in this way when it writes the old protocols."""
    if encoding not in ("latin1", b"latin1"):
        raise DataError(f"the pickle holds bytes in the encoding {encoding!r}")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise DataError(f"the pickle asks for {module}.{name}, which no data set needs: do not trust this file")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise DataError("the pickle asks for a persistent object, which no data set needs: do not trust this file")


def loads(data: bytes) -> dict[str, Any]:
    """Read a pickled dictionary of arrays, lists and texts. Its keys become texts, whichever Python wrote them."""
    content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    if not isinstance(content, dict):
        raise DataError(f"the pickle holds a {type(content).__name__}, a dictionary is expected")
    return {_text(key): value.value if isinstance(value, _Array) else value for key, value in content.items()}


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
