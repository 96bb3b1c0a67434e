"""Pickles of strangers: plain containers and arrays of numbers, and nothing that could run code.

No class or function that a pickle names is ever looked up. The few names that an array needs are answered
with the stand-ins below, everything else is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from heterophony.data.errors import DataError

BYTES = ("u1",)
OBJECT = "O8"
NUMBERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


class _Dtype:
    """Stands in for `numpy.dtype`; only the expected types are let through."""

    def __init__(self, expected: tuple[str, ...], code: object, *_: object) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code
        self.order = "|"
        if self.code not in expected:
            known = "bytes (u1)" if expected == BYTES else "numbers"
            raise DataError(f"the pickle holds an array of type {code!r}, only {known} are expected")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self.order = order.decode("latin1") if isinstance(order, bytes) else order

    @property
    def true(self) -> np.dtype[Any]:
        """Return the type itself. The order of its bytes is one of the three that numpy writes."""
        if self.order not in ("<", ">", "|") or self.code == OBJECT:
            raise DataError("the pickle holds an array of an unexpected form")
        return np.dtype(f"{self.order}{self.code}")


class _Array:
    """Stands in for an array that is being put together."""

    value: np.ndarray[Any, Any] | None = None
    held: tuple[Any, ...] = ()  # of an array of objects

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if isinstance(dtype, _Dtype) and dtype.code == OBJECT and shape == () and isinstance(data, list):
            self.held = tuple(data)
            return
        if not isinstance(dtype, _Dtype) or fortran or not isinstance(data, bytes):
            raise DataError("the pickle holds an array of an unexpected form")
        if len(data) != math.prod(shape) * dtype.true.itemsize:
            raise DataError(f"the pickle holds an array of shape {shape} with {len(data)} bytes")
        found = np.frombuffer(data, dtype.true).reshape(shape)
        self.value = found.astype(dtype.true.newbyteorder("="), copy=False)


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
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, dtype: Callable[..., _Dtype]) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self.dtype = dtype

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return self.dtype
        if (module, name) not in _STAND_INS:
            raise DataError(f"the pickle asks for {module}.{name}, which no data set needs: do not trust this file")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise DataError("the pickle asks for a persistent object, which no data set needs: do not trust this file")


def loads(data: bytes, types: tuple[str, ...] = BYTES) -> dict[str, Any]:
    """Read a pickled dictionary of arrays, lists and texts. Its keys become texts, whichever Python wrote them."""
    return _plain(_Unpickler(data, partial(_Dtype, types)).load())


def boxed(data: bytes) -> dict[str, Any]:
    """Read a dictionary of arrays of numbers that `numpy.save` wrote as an array of one object."""
    box = _Unpickler(data, partial(_Dtype, (*NUMBERS, OBJECT))).load()
    if not isinstance(box, _Array) or len(box.held) != 1:
        raise DataError("the pickle holds no dictionary of arrays")
    return _plain(box.held[0])


def _plain(content: object) -> dict[str, Any]:
    """Return a dictionary in which arrays stand where their stand-ins stood."""
    if not isinstance(content, dict):
        raise DataError(f"the pickle holds a {type(content).__name__}, a dictionary is expected")
    return {_text(key): value.value if isinstance(value, _Array) else value for key, value in content.items()}


def _text(key: object) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)
