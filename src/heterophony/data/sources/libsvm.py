"""USPS as libsvm text in bzip2: `label 1:v 2:v ...`, labels 1..10 for the digits 0..9, values in -1..1."""

from __future__ import annotations

import bz2
from pathlib import Path

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources.files import Official, contents, locate, reading
from heterophony.data.sources.known_set import File, KnownSet
from heterophony.data.sources.source import Source, Split, split

SIDE = 16


class Libsvm(Official):
    """Reads the two files in the order of the entry: train, test."""

    def read(self, entry: KnownSet, root: Path) -> Source:
        train, test = (
            _half(entry, root, file, half) for file, half in zip(entry.files, ("train", "test"), strict=True)
        )
        return Source(entry.name, entry.classes, train, test)


def _half(entry: KnownSet, root: Path, file: File, half: str) -> Split:
    data = contents(entry, root, file)
    with reading(locate(entry, root, file) or root):
        lines = [line.replace(":", " ").split() for line in bz2.decompress(data).decode("ascii").splitlines()]
        table = np.array(lines, dtype=np.float32)
        if table.ndim != 2 or not np.array_equal(table[0, 1::2], np.arange(1, SIDE * SIDE + 1)):
            raise DataError(f"every line must hold a label and {SIDE * SIDE} values")
        # Rounded down, as everybody who reads these files does.
        grey = ((table[:, 2::2] + 1) / 2 * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
        return split(f"{entry.identity}/{half}", grey, table[:, 0].astype(np.int64) - 1)
