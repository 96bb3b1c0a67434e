"""Data of one's own: a file of arrays, a folder `folder:PATH` of images or arrays, or a function `module:callable`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heterophony.base import imported
from heterophony.data import rows
from heterophony.data.errors import DataError
from heterophony.data.sources import arrays, npz
from heterophony.data.sources.by_client import ByClient
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.files import reading
from heterophony.data.sources.folders import Pictures
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.layout import ArrayLayout, only_of
from heterophony.data.sources.readers import ArrayFile, ArrayFolder, SavedDataset
from heterophony.data.sources.source import Source
from heterophony.data.sources.stored import SUFFIXES

FOLDER = "folder:"  # before the path of a folder
FORMS = "PATH.csv (.txt, ...) or PATH.npz, folder:PATH or module:callable"


def path_of(name: str) -> Path | None:
    """Return the path that such a name holds; None: it holds none."""
    if not name.startswith(FOLDER) and not name.endswith(SUFFIXES):
        return None
    return Path(os.path.expanduser(name.removeprefix(FOLDER)))  # which leaves strangers' `~` alone


def short(name: str) -> str:
    """Return what a domain of such data is called, wherever they lie. Known sets have their own names."""
    path = path_of(name)
    return name if path is None else path.stem if name.endswith(SUFFIXES) else path.name or name


def whole(name: str, *places: Path) -> str:
    """Return the same data by an absolute path, in the first of these places that has it; else the name as it is."""
    path = path_of(name)
    if path is None:
        return name
    found = next((place / path for place in places if (place / path).exists()), path)
    before = FOLDER if name.startswith(FOLDER) else ""
    return before + (os.path.abspath(found) if found.is_absolute() or found is not path else str(path))


def entry(name: str, layout: ArrayLayout | None = None) -> KnownSet | None:
    """Return what is known of data of one's own; None: the name is not of such data.

    With a layout, or in a file that is no `.npz`, they are arrays of any shape; otherwise they are images.
    """
    path = path_of(name)
    if path is None:
        return KnownSet(name, "what a function returns", "one's own", (Function(layout),)) if ":" in name else None
    if name.startswith(FOLDER):
        return _folder(name, path, layout)
    if layout is not None or path.suffix != ".npz":
        reader = ArrayFile(layout or ArrayLayout())
        return KnownSet(name, "arrays of one's own", "one's own", (reader,), folders=(str(path),))
    return KnownSet(name, "arrays of one's own", "one's own", npz=(str(path.with_suffix("")),))


def _folder(name: str, path: Path, layout: ArrayLayout | None) -> KnownSet:
    """Return what is known of a folder: one that Hugging Face `datasets` saved, one of arrays, or one of images."""
    arrays_of = layout or ArrayLayout()
    by_client = () if arrays_of.files or arrays_of.x or arrays_of.y else (ByClient(arrays_of),)
    readers = (SavedDataset(arrays_of), *by_client, Pictures() if layout is None else ArrayFolder(layout))
    what = "images" if layout is None else "arrays"
    side = 64 if layout is None else None
    return KnownSet(name, f"{what} of one's own", "one's own", readers, folders=(str(path),), side=side)


def imports(name: str) -> bool:
    """Return whether such data are what a function returns, whose module is imported."""
    return ":" in name and path_of(name) is None


def absent(name: str, root: Path) -> str:
    """Say where data of one's own were looked for."""
    path, what = path_of(name), "folder" if name.startswith(FOLDER) else "file"
    if path is not None and path.is_absolute():
        return f"data: there is no {what} {path}"
    return f"data: there is no {what} {path} beside the TOML file that names it, in {Path.cwd()} or in {root}"


@dataclass(frozen=True)
class Function:
    """Calls a function that returns arrays by name, as an `.npz` file holds them, or a torch `Dataset`."""

    layout: ArrayLayout | None = None

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        return Path(entry.name)

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        try:
            found = imported.call(entry.name, "data")
        except ValueError as error:
            raise DataError(str(error)) from error
        path = Path(entry.name)
        with reading(path):
            columns, of_datasets = _columns(found)
            if self.layout is None and not of_datasets:
                return npz.source(entry, columns)
            layout = self.layout or ArrayLayout()
            only_of(layout, path, "folders", "files", "test_files", "each_file", "train_split", "test_split")
            return arrays.source(entry, Columns(path, columns), layout)


def _columns(found: object) -> tuple[dict[str, Column], bool]:
    """Return what a function gave as columns by name, and whether it gave data sets.

    That is a dictionary of arrays; a data set; or a dictionary `{"train": ..., "test": ...}` of such.
    """
    if not isinstance(found, Mapping):
        if not rows.is_dataset(found):
            wanted = "a dictionary with train_x, train_y, ... or a torch Dataset"
            raise DataError(f"the call gave a {type(found).__name__}, not {wanted}")
        return rows.columns(found), True
    halves = {name: half for name, half in found.items() if rows.is_dataset(half)}
    if not halves:
        return {str(key): np.asarray(value) for key, value in found.items()}, False
    if not {"train"} <= set(found) <= {"train", "test"} or len(halves) < len(found):
        raise DataError(f"data sets must be called train and test, got {', '.join(map(str, found))}")
    read = {name: rows.columns(half, f"the {name} half: ") for name, half in halves.items()}
    return {f"{name}_{key}": column for name, own in read.items() for key, column in own.items()}, True
