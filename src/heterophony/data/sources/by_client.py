"""Folders in which each client has its rows, as PFLlib, HtFLlib and LEAF write them: `train` and `test`, by client."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from heterophony.data.errors import DataError
from heterophony.data.sources import arrays, pickles
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.files import reading
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.layout import ArrayLayout
from heterophony.data.sources.source import Source

GROUP = "client"  # the column that says whose a row is
Rows = tuple[str, Column, Column]  # of one client: its name, what networks read, labels


@dataclass(frozen=True)
class ByClient:
    """`train/0.npz`, `train/1.npz`, ... (PFLlib, HtFLlib) or `train/*.json` with `users` and `user_data` (LEAF)."""

    layout: ArrayLayout

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        places = (Path(folder) if Path(folder).is_absolute() else root / folder for folder in entry.folders)
        return next((place for place in places if _files(place, "train") and _files(place, "test")), None)

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        place = self.find(entry, root)
        assert place is not None
        halves = [_columns(place / half, _files(place, half)) for half in ("train", "test")]
        return arrays.source(entry, halves[0], replace(self.layout, x="x", y="y", group=GROUP), halves[1])


def _files(place: Path, half: str) -> list[Path]:
    """Return the files of one half, in the order of their numbers; none where the folder is of another form."""
    numbered = [path for path in (place / half).glob("*.npz") if path.stem.isdigit()]
    return sorted(numbered, key=lambda path: int(path.stem)) or sorted((place / half).glob("*.json"))


def _columns(place: Path, files: list[Path]) -> Columns:
    """Put together the rows of all clients of one half."""
    found: list[Rows] = []
    for path in files:
        with reading(path):
            found += _of_npz(path) if path.suffix == ".npz" else _of_json(path)
    shape = found[0][1].shape[1:] if found else ()
    for name, x, y in found:
        if x.shape[1:] != shape or x.shape[:1] != y.shape:
            raise DataError(f"{place}: client {name} has rows of {x.shape[1:]} and {len(y)} labels, others of {shape}")
    names = np.repeat(np.array([name for name, _, _ in found]), [len(y) for _, _, y in found])
    x, y = (np.concatenate([rows[at] for rows in found]) for at in (1, 2))
    return Columns(place, {"x": x, "y": y, GROUP: names})


def _of_npz(path: Path) -> Iterator[Rows]:
    """Yield the rows of one client: a dictionary of `x` and `y`, which such a file holds as one pickled object."""
    if not zipfile.is_zipfile(path):
        raise DataError("it is no .npz file, or is cut short")
    with zipfile.ZipFile(path) as archive:
        if "data.npy" not in archive.namelist():
            raise DataError("it has no array called data, as PFLlib's files have")
        with archive.open("data.npy") as stream:
            npy.read_magic(stream)
            npy.read_array_header_1_0(stream)
            content = pickles.boxed(stream.read())
    x, y = (content.get(key) for key in ("x", "y"))
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise DataError("its dictionary must hold x and y as arrays of numbers")
    yield path.stem, x, y


def _of_json(path: Path) -> Iterator[Rows]:
    """Yield the rows of each user of a file as LEAF writes them."""
    content = json.loads(path.read_text())
    held: Any = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(held, dict):
        raise DataError("it has no user_data, as LEAF's files have")
    for user, rows in held.items():
        if not isinstance(rows, dict) or not {"x", "y"} <= rows.keys():
            raise DataError(f"user {user!r} has no x and y")
        x, y = np.asarray(rows["x"]), np.asarray(rows["y"])
        if x.dtype.kind not in "iufb":
            raise DataError(f"user {user!r}: x holds {x.dtype.name}, not numbers in rows of one length")
        if len(y):
            yield str(user), x.astype(np.float32) if x.dtype.kind == "f" else x, y
