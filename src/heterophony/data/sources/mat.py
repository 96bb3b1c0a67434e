"""The .mat files of SVHN and of Ganin's synthetic digits: `X` as (H, W, C, N), `y` with 10 for a zero."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from heterophony.data.sources.files import Official, contents, late, locate, reading
from heterophony.data.sources.known_set import File, KnownSet
from heterophony.data.sources.source import Source, Split, split


class Mat(Official):
    """Reads the two files in the order of the entry: train, test."""

    def read(self, entry: KnownSet, root: Path) -> Source:
        train, test = (
            _half(entry, root, file, half) for file, half in zip(entry.files, ("train", "test"), strict=True)
        )
        return Source(entry.name, entry.classes, train, test)


def _half(entry: KnownSet, root: Path, file: File, half: str) -> Split:
    scipy_io = late("scipy.io", "scipy", f"{file.name} ({entry.name})")
    data = contents(entry, root, file)
    with reading(locate(entry, root, file) or root):
        arrays = scipy_io.loadmat(io.BytesIO(data), variable_names=["X", "y"])
        x = np.ascontiguousarray(arrays["X"].transpose(3, 0, 1, 2))
        return split(f"{entry.identity}/{half}", x, arrays["y"].reshape(-1).astype(np.int64) % 10)
