"""Readers of arrays of a user's own: of a file, of a folder of files, and of a folder that `datasets` saved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from heterophony.data.errors import DataError
from heterophony.data.sources import array_folder, saved_dataset
from heterophony.data.sources.arrays import source, values
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.keys import filled, several
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.layout import ArrayLayout, only_of
from heterophony.data.sources.source import Source
from heterophony.data.sources.stored import opened

_OF_FOLDERS = ("files", "test_files", "each_file")
_OF_SAVED = ("train_split", "test_split")


@dataclass(frozen=True)
class ArrayFile:
    """Reads a file of one's own by its layout."""

    layout: ArrayLayout = field(default_factory=ArrayLayout)

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        path = root / entry.folders[0]
        return path if path.is_file() else None

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        path = root / entry.folders[0]
        _check_file(path, self.layout)
        return source(entry, opened(path), self.layout)


@dataclass(frozen=True)
class ArrayFolder:
    """Reads a folder of one's own: files that `files` of its layout names, or those that its keys name."""

    layout: ArrayLayout

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        path = root / entry.folders[0]
        return path if path.is_dir() else None

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        place, layout = root / entry.folders[0], self.layout
        only_of(layout, place, "folders that Hugging Face datasets saved", *_OF_SAVED)
        only_of(layout, place, "a file: name test_files of a folder", "test_file")
        if layout.files is None:
            return source(entry, _named_files(place, layout), layout)
        test = None if layout.test_files is None else _together(place, layout.test_files, layout)
        if test is not None:
            _check_apart(place, layout.files, layout.test_files or "")
        return source(entry, _together(place, layout.files, layout), layout, test)


@dataclass(frozen=True)
class SavedDataset:
    """Reads a folder that Hugging Face `datasets` saved."""

    layout: ArrayLayout = field(default_factory=ArrayLayout)

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        path = root / entry.folders[0]
        return path if saved_dataset.is_one(path) else None

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        place, layout = root / entry.folders[0], self.layout
        only_of(layout, place, "folders of files", *_OF_FOLDERS)
        only_of(layout, place, "a file: name test_split of this folder", "test_file")
        train, test = saved_dataset.halves(place, layout.train_split, layout.test_split)
        return source(entry, train, layout, test)


def unlabelled(path: Path, layout: ArrayLayout) -> Column:
    """Return what networks read, of a file or a folder that needs no labels: laid out as the training rows were."""
    if path.is_dir():
        return values(*_of_folder(path, layout))
    if layout.files is None and any("*" in key for key in several(layout.x or ())):
        raise DataError(f"{path}: training rows were files {', '.join(several(layout.x or ()))}: give their folder")
    return values(array_folder.part_of(path, True) if layout.each_file == "row" else opened(path), layout)


def _of_folder(place: Path, layout: ArrayLayout) -> tuple[Columns, ArrayLayout]:
    """Return a folder's rows: those of its training half, or of its test half where there is no other."""
    if saved_dataset.is_one(place):
        return saved_dataset.halves(place, layout.train_split, layout.test_split)[0], layout
    if layout.files is not None:
        return _together(place, layout.files, layout), layout
    if layout.x is None:
        raise DataError(f"{place} is a folder: give a file, as the training rows were")
    there = any(list(place.glob(key)) for key in several(layout.x))
    return Columns(place, {}), layout if there or layout.test_x is None else replace(layout, x=layout.test_x)


def _check_file(path: Path, layout: ArrayLayout) -> None:
    """Raise where a layout asks of one file what only folders have, or tests on the rows that are trained on."""
    only_of(layout, path, "folders", *_OF_FOLDERS)
    only_of(layout, path, "folders that Hugging Face datasets saved", *_OF_SAVED)
    if layout.test_file is not None and layout.test_x is None:
        other = path.parent / layout.test_file
        if other.exists() and other.samefile(path):
            raise DataError(f"{path}: test_file is the file itself, so it would be trained on too")


def _named_files(place: Path, layout: ArrayLayout) -> Columns:
    """Return a folder whose files are the keys."""
    only_of(layout, place, "folders with files", "test_files", "each_file")
    if layout.x is None or layout.y is None:
        raise DataError(
            f'{place}: say in data.arrays.files which files are read, such as "user_{{user}}.csv", '
            'or name files in x and y, such as x = "X_train.txt"'
        )
    return Columns(place, {})


def _check_apart(place: Path, files: str, test_files: str) -> None:
    """Raise where a file is trained and tested on."""
    train = {path for path, _ in array_folder.matching(place, files)}
    for path, _ in array_folder.matching(place, test_files):
        if path in train:
            raise DataError(f"{path}: data.arrays.files names it as test_files does, so it would be trained on too")


def _together(place: Path, pattern: str, layout: ArrayLayout) -> Columns:
    def key(part: Columns) -> str:
        return several(filled(part, layout).x or ())[0]

    return array_folder.folder(place, pattern, layout.each_file == "row", key)
