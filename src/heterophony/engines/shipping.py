"""A federation as one object that many processes of a machine share: its data are not copied into any of them.

By Ray's own pickle, among machines that trust each other. Messages and snapshots never are: see `codec.py`.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
import warnings
from dataclasses import MISSING, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heterophony.data.table import Data
from heterophony.federation import Federation
from heterophony.kernel.method import Method
from heterophony.tasks.task import Task

ALIGNED = 16  # bytes, as every allocator has them
Shipment = tuple[bytes, list[npt.NDArray[np.uint8]], list[str]]  # pickled, its arrays, where modules were found
Layout = tuple[npt.NDArray[Any], list[int]]  # an array in the order of memory, and the axes that it had


def pack(federation: Federation) -> Shipment:
    """Return the federation's bytes, and apart from them its arrays, which an object store can share."""
    from ray import cloudpickle

    buffers: list[pickle.PickleBuffer] = []

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def reducer_override(self, thing: Any) -> Any:
            ours = _reduced(thing)
            return super().reducer_override(thing) if ours is NotImplemented else ours

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=buffers.append).dump(federation)
    return file.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers], list(sys.path)


def unpack(shipment: Shipment) -> Federation:
    """Return the federation; its data are where the arrays are, which others read too."""
    pickled, arrays, path = shipment
    sys.path += [folder for folder in path if folder not in sys.path]
    made: Federation = pickle.loads(pickled, buffers=arrays)
    return made


def _reduced(thing: Any) -> Any:
    """Return how to pickle what ordinary pickling would copy, or could not do."""
    if isinstance(thing, Data):
        return _data, ({name: _array(column) for name, column in thing.columns.items()}, thing.task, thing.augment)
    if isinstance(thing, functools._lru_cache_wrapper) and not hasattr(thing, "__qualname__"):
        return functools.cache, (thing.__wrapped__,)  # of a partial: it is found under no name
    if isinstance(thing, type) and issubclass(thing, Method) and not _importable(thing):
        return _method, (thing.__name__, *_written(thing))
    return NotImplemented


def _array(column: Tensor) -> Tensor | Layout:
    """Return a column in the order in which it lies in memory; one that is no plain array goes as torch pickles it."""
    axes = sorted(range(column.dim()), key=column.stride, reverse=True)
    flat = column.detach().permute(axes)
    if column.device.type != "cpu" or not flat.is_contiguous() or column.dtype == torch.bfloat16:
        return column
    return flat.numpy(), [axes.index(axis) for axis in range(column.dim())]


def _data(columns: dict[str, Tensor | Layout], task: Task, augment: Any) -> Data:
    made = {name: column if isinstance(column, Tensor) else _tensor(*column) for name, column in columns.items()}
    return Data.of_columns(made, task).augmented(augment)


def _tensor(array: npt.NDArray[Any], axes: list[int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is not to be written to is as it should be
        made = torch.from_numpy(array)
    # Products round otherwise where rows begin between the words that a processor reads at once, and an object store
    # packs small arrays closely.
    return (made if made.data_ptr() % ALIGNED == 0 else made.clone()).permute(axes)


def _importable(cls: type) -> bool:
    found: Any = None if cls.__module__ == "__main__" else sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _written(cls: type[Method]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a method's class body as its author wrote it: what `Method` and `dataclass` added, they will add again."""
    kept = ("__module__", "__qualname__", "__doc__", "__annotations__")
    body = {name: value for name, value in vars(cls).items() if name in kept or not name.startswith("__")}
    body.pop("reactions")
    made: tuple[Any, ...] = fields(cls)  # type: ignore[arg-type]
    return body, {f.name: f.default_factory for f in made if f.default_factory is not MISSING}


def _method(name: str, body: dict[str, Any], factories: dict[str, Any]) -> type:
    body = body | {key: field(default_factory=factory) for key, factory in factories.items()}
    return types.new_class(name, (Method,), {}, lambda namespace: namespace.update(body))
