"""The python batches of CIFAR-10 and CIFAR-100, as an archive or unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources import pickles
from heterophony.data.sources.files import Official, locate, reading, unpacked
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Source, Split, split


class Cifar(Official):
    """Reads the batches; their checksums are checked before a byte is interpreted."""

    def read(self, entry: KnownSet, root: Path) -> Source:
        (file,) = entry.files
        members = unpacked(entry, root, file)
        with reading(locate(entry, root, file) or root):
            batches = {name: pickles.loads(data) for name, data in members.items()}
            meta = batches.pop("batches.meta", None) or batches.pop("meta")
            test = batches.pop("test_batch", None) or batches.pop("test")
            classes = meta.get("label_names") or meta["fine_label_names"]
            return Source(
                entry.name,
                _names(classes),
                _half(f"{entry.identity}/train", list(batches.values())),
                _half(f"{entry.identity}/test", [test]),
                _names(meta.get("coarse_label_names", ())),
            )


def _half(base: str, batches: Sequence[Mapping[str, Any]]) -> Split:
    # Each row is one image: the red plane, then green, then blue.
    pixels = np.concatenate([_array(batch["data"]) for batch in batches]).reshape(-1, 3, 32, 32)
    labels = [_labels(batch, "labels" if "labels" in batch else "fine_labels") for batch in batches]
    coarse = [_labels(batch, "coarse_labels") for batch in batches if "coarse_labels" in batch]
    x = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))
    return split(base, x, np.concatenate(labels), coarse=np.concatenate(coarse) if coarse else None)


def _array(value: object) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not isinstance(value, np.ndarray):
        raise DataError(f"'data' is a {type(value).__name__}, an array is expected")
    return value


def _labels(batch: Mapping[str, Any], key: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(batch[key], dtype=np.int64)


def _names(names: Sequence[str | bytes]) -> tuple[str, ...]:
    return tuple(name.decode() if isinstance(name, bytes) else name for name in names)
