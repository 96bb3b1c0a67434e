"""One file of a user's own, by its suffix: each kind is opened as named columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch

from heterophony.data.errors import DataError
from heterophony.data.sources import npz, single
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.files import reading
from heterophony.data.sources.tables import from_csv, from_parquet


def opened(path: Path) -> Columns:
    """Read the columns of a file. Nothing is ever unpickled."""
    return _KINDS[path.suffix](path)


def _npz(path: Path) -> Columns:
    with npz.opened(path) as arrays:
        return Columns(path, {str(name): _array(arrays, str(name)) for name in arrays})


def _array(arrays: npz.Arrays, name: str) -> Column:
    try:
        return arrays[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise DataError(f"the array {name!r} holds Python objects: save numbers and texts alone") from None


def _single(path: Path) -> Columns:
    return Columns(path, {path.name: single.array(path)}, texts=path.suffix == ".txt")


def _safetensors(path: Path) -> Columns:
    with reading(path):
        tensors = safetensors.torch.load_file(str(path))
        for name, tensor in tensors.items():
            if tensor.dtype not in _KNOWN:
                raise DataError(f"{name!r} holds {str(tensor.dtype).removeprefix('torch.')}: save it as float32")
        return Columns(path, {name: tensor.numpy() for name, tensor in tensors.items()})


# What arrays may hold: of bfloat16 and the like numpy knows nothing.
_KNOWN = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
}
_KINDS: dict[str, Callable[[Path], Columns]] = {
    ".npz": _npz,
    ".npy": _single,
    ".txt": _single,
    ".csv": from_csv,
    ".parquet": from_parquet,
    ".safetensors": _safetensors,
}
SUFFIXES = tuple(_KINDS)
