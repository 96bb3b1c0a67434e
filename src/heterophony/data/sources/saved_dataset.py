"""Folders that Hugging Face `datasets` saved (`save_to_disk`), read by the library itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from heterophony.base.wording import listed
from heterophony.data.errors import DataError
from heterophony.data.sources.columns import Column, Columns, Lazy
from heterophony.data.sources.files import reading
from heterophony.data.sources.tables import plain

MARKS = ("dataset_dict.json", "state.json")  # of a set with splits, and of one without


def is_one(place: Path) -> bool:
    """Return whether a folder is such a one."""
    return any((place / mark).is_file() for mark in MARKS)


def halves(place: Path, train: str | None, test: str | None) -> tuple[Columns, Columns | None]:
    """Return the columns to train on, and those to test on. `train` and `test` are names of splits."""
    with reading(place):
        found = _library(place).load_from_disk(str(place))
    if not isinstance(found, dict):
        if train is not None or test is not None:
            raise DataError(f"{place}: it has no splits: take data.arrays.train_split and test_split out")
        return _columns(place, found), None
    first = _split(place, found, "train_split", train or "train")
    if test is None and ("test" not in found or train == "test"):
        return first, None
    if test == (train or "train"):
        raise DataError(f"{place}: the split {test!r} is train_split and test_split, so it would be trained on too")
    return first, _split(place, found, "test_split", test or "test")


def _library(place: Path) -> Any:
    try:
        library = importlib.import_module("datasets")
        library.load_from_disk  # noqa: B018 - a module of the user's may have that name
    except (ImportError, AttributeError):
        raise DataError(f"{place}: reading it needs datasets: pip install 'heterophony[hf]'") from None
    return library


def _split(place: Path, splits: dict[str, Any], field: str, name: str) -> Columns:
    if name not in splits:
        raise DataError(f"{place}: there is no split {name!r}, only {listed(list(splits))}: set data.arrays.{field}")
    return _columns(place / name, splits[name])


def _columns(place: Path, dataset: Any) -> Columns:
    """Return the columns of a split, each of which is read when it is asked for."""

    def read(name: str) -> Column:
        with reading(place):
            return plain(_numpy(dataset.select_columns([name]), _type(dataset.features[name]), name))

    names = {
        name: tuple(feature.names)
        for name, feature in dataset.features.items()
        if type(feature).__name__ == "ClassLabel"
    }
    return Columns(place, Lazy(tuple(dataset.column_names), read), table=True, class_names=names)


def _numpy(dataset: Any, wanted: np.dtype[Any] | None, name: str) -> Column:
    """Return a column in the type that it was saved with. By itself the library makes float32 and int64 of numbers."""
    exact = {"dtype": wanted} if wanted is not None and wanted.kind == "f" else {}
    found = np.asarray(dataset.with_format("numpy", **exact)[:][name])
    # Where numbers are missing, whole ones have become floats, which say so.
    return found.astype(wanted) if wanted is not None and found.dtype.kind in "iu" else found


def _type(feature: Any) -> np.dtype[Any] | None:
    """Return the type of the numbers of a column; None: it holds others, or what they are is not said."""
    while hasattr(feature, "feature"):
        feature = feature.feature
    try:
        found = np.dtype(getattr(feature, "dtype", None) or "O")
    except TypeError:
        return None
    return found if found.kind in "biuf" else None
