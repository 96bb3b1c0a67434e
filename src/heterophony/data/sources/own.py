"""Data of one's own: a file of arrays, a folder of images `folder:PATH`, or a function `module:callable`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heterophony.base import imported
from heterophony.data.errors import DataError
from heterophony.data.sources import arrays, npz
from heterophony.data.sources.arrays import ArrayFile, ArrayLayout
from heterophony.data.sources.columns import SUFFIXES, Columns
from heterophony.data.sources.files import reading
from heterophony.data.sources.folders import Pictures
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Source

FOLDER = "folder:"  # before the path of a folder of images
FORMS = "PATH.csv, .parquet, .npy or PATH.npz, folder:PATH or module:callable"


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
    if name.startswith(FOLDER) and layout is not None:
        raise DataError(f"data.arrays is for files of arrays; {name} is a folder of images")
    if not name.startswith(FOLDER) and (layout is not None or path.suffix != ".npz"):
        reader = ArrayFile(layout or ArrayLayout())
        return KnownSet(name, "arrays of one's own", "one's own", (reader,), folders=(str(path),))
    if name.startswith(FOLDER):
        return KnownSet(name, "images of one's own", "one's own", (Pictures(),), folders=(str(path),), side=64)
    return KnownSet(name, "arrays of one's own", "one's own", npz=(str(path.with_suffix("")),))


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
    """Calls a function that returns the arrays that an `.npz` file would hold, by the same names."""

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
        with reading(Path(entry.name)):
            if not isinstance(found, Mapping):
                raise DataError(f"the call gave a {type(found).__name__}, not a dictionary with train_x, train_y, ...")
            columns = {str(key): np.asarray(value) for key, value in found.items()}
            if self.layout is not None:
                return arrays.source(entry, Columns(Path(entry.name), columns), self.layout)
            return npz.source(entry, columns)
