"""MNIST's idx format, raw or gzipped."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources.files import Official, locate, reading, unpacked
from heterophony.data.sources.known_set import File, KnownSet
from heterophony.data.sources.source import Images, Source, split


class Idx(Official):
    """Reads the four files in the order of the entry: train images and labels, test images and labels."""

    def read(self, entry: KnownSet, root: Path) -> Source:
        train_x, train_y, test_x, test_y = (
            _array(entry, root, file, axes) for file, axes in zip(entry.files, (3, 1, 3, 1), strict=True)
        )
        with reading(root / entry.folders[0]):
            train = split(f"{entry.identity}/train", train_x, train_y)
            test = split(f"{entry.identity}/test", test_x, test_y)
            return Source(entry.name, entry.classes, train, test)


def _array(entry: KnownSet, root: Path, file: File, axes: int) -> Images:
    (data,) = unpacked(entry, root, file).values()
    with reading(locate(entry, root, file) or root):
        return parse(data, axes)


def parse(data: bytes, axes: int) -> Images:
    """Read the bytes of an idx file with that many axes. Its values must be unsigned bytes."""
    start = 4 + 4 * axes
    magic, *shape = struct.unpack_from(f">{1 + axes}I", data)
    if magic != 0x0800 | axes:
        raise DataError(f"an idx file of {axes} axes begins with {0x0800 | axes:#06x}, this one with {magic:#06x}")
    if len(data) - start != math.prod(shape):
        raise DataError(f"the header says {math.prod(shape)} bytes, there are {len(data) - start}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
