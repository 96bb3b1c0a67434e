"""Plain `.npz` files: `train_x`, `train_y`, `test_x`, ... or, for a domain, `photo_x`, `photo_y`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from heterophony.data.errors import DataError
from heterophony.data.root import find
from heterophony.data.sources.files import reading
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Source, Split, empty, split

Arrays = Mapping[str, npt.NDArray[Any]]


class Npz:
    """Reads the plain form, which goes before every official one."""

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        found = (find(name, root) for name in entry.npz)
        return next((path for path in found if path and path.suffix == ".npz"), None)

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        path = _required(self.find(entry, root))
        with reading(path), zipfile.ZipFile(path) as archive:
            train = _rows(archive, f"{entry.domain or 'train'}_x")
            test = 0 if entry.domain else _rows(archive, "test_x")
        return train, test

    def read(self, entry: KnownSet, root: Path) -> Source:
        return read(entry, _required(self.find(entry, root)))


def read(entry: KnownSet, path: Path) -> Source:
    """Read the source that an `.npz` file holds. Nothing is ever unpickled."""
    with opened(path) as arrays:
        return source(entry, arrays)


@contextmanager
def opened(path: Path) -> Iterator[Arrays]:
    """Open the arrays of an `.npz` file. Where it holds something else, one line names the file."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise DataError(f"{path} is not an .npz file, or is cut short: write it with numpy.savez")
        try:
            with np.load(path, allow_pickle=False) as arrays:
                yield arrays
        except ValueError as error:
            if "Object arrays" not in str(error):
                raise
            raise DataError("an array in it holds Python objects: save numbers and texts alone") from None


def source(entry: KnownSet, arrays: Arrays) -> Source:
    """Make a source of arrays, by the names that a file gives them."""
    train = _half(arrays, entry, entry.domain or "train", "train")
    if not len(train):
        raise DataError("there are no rows to train on")
    absent = entry.domain or "test_x" not in arrays
    test = empty(f"{entry.identity}/test", train) if absent else _half(arrays, entry, "test", "test")
    classes = _names(arrays, "classes") or entry.classes or _numbers(train, test)
    return Source(entry.name, classes, train, test, _names(arrays, "classes_coarse"))


def _half(arrays: Arrays, entry: KnownSet, prefix: str, half: str) -> Split:
    for key in (f"{prefix}_x", f"{prefix}_y"):
        if key not in arrays:
            known = ", ".join(arrays) or "nothing"
            raise DataError(f"there is no array {key!r}, only {known}; data.arrays names arrays of one's own")
    optional = {
        name: arrays[key]
        for name, key in (("index", f"{prefix}_index"), ("coarse", f"{prefix}_y_coarse"))
        if key in arrays
    }
    return split(f"{entry.identity}/{half}", arrays[f"{prefix}_x"], arrays[f"{prefix}_y"], **optional)


def _names(arrays: Arrays, key: str) -> tuple[str, ...]:
    return tuple(str(name) for name in arrays[key]) if key in arrays else ()


def _numbers(train: Split, test: Split) -> tuple[str, ...]:
    """Name the classes by their numbers: as many as the largest label says."""
    labels = np.concatenate([train.y, test.y])
    if not len(labels):
        raise DataError("there are no rows")
    if labels.max() >= len(labels):
        raise DataError(f"{len(labels)} rows have labels up to {labels.max()}: number the classes from 0")
    if labels.min() > 0:
        raise DataError(
            f"labels go from {labels.min()} to {labels.max()}, so class 0 is empty: number the classes from 0, "
            "or give all their names in `classes`"
        )
    return tuple(map(str, range(int(labels.max()) + 1)))


def _rows(archive: zipfile.ZipFile, key: str) -> int:
    """Read the length of an array from its header alone."""
    if f"{key}.npy" not in archive.namelist():
        return 0
    with archive.open(f"{key}.npy") as stream:
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        return int(header(stream)[0][0])


def _required(path: Path | None) -> Path:
    if path is None:
        raise DataError("there is no .npz file of this set")
    return path
