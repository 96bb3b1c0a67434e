"""Folders of image files: one folder a class (PACS, Office-Home), a list of labels (MNIST-M), or just images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources.files import late, reading
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Images, Source, Split, empty, split

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


class Domains:
    """`pacs/photo/dog/*.jpg`: folders of classes in folders of domains; all images are in `train`."""

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        for place in _sets(entry, root):
            found = _child(place, entry.domain)
            if found is not None and _classes([found]):
                return found
        return None

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        place = self._place(entry, root)
        return len(_listing(place, _classes([place]))[0]), 0

    def read(self, entry: KnownSet, root: Path) -> Source:
        place = self._place(entry, root)
        # All domains are looked at, so that a class missing in one of them does not shift its labels.
        siblings = [_child(place.parent, domain) for domain in entry.domains]
        classes = entry.classes or _classes([folder for folder in siblings if folder])
        train = _half(entry, place, classes, "train")
        return Source(entry.name, classes, train, empty(f"{entry.identity}/test", train))

    def _place(self, entry: KnownSet, root: Path) -> Path:
        place = self.find(entry, root)
        if place is None:
            raise DataError(f"there is no folder of {entry.name} under {root}")
        return place


class Pictures:
    """Any folder: of classes (an excerpt of ImageNet, say), or of images alone, which are then one class."""

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        return next(iter(_sets(entry, root)), None)

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return None

    def read(self, entry: KnownSet, root: Path) -> Source:
        place = self.find(entry, root) or root
        classes = _classes([place])
        if classes:
            train = _half(entry, place, classes, "train")
        else:
            paths = sorted((p for p in place.iterdir() if p.suffix.lower() in _SUFFIXES), key=lambda p: p.name)
            if not paths:
                raise DataError(
                    f"there are no images in {place}, nor folders of images; data.arrays reads folders of arrays"
                )
            images = _decode(paths, entry.side)
            train = split(f"{entry.identity}/train", images, np.zeros(len(images), dtype=np.int64))
        return Source(entry.name, classes or ("image",), train, empty(f"{entry.identity}/test", train))


class TrainAndTest:
    """`syn/imgs_train/0/*.jpg`: folders of classes in a train and a test folder."""

    TRAIN = ("train", "imgs_train")
    TEST = ("test", "imgs_test", "val", "valid", "imgs_valid")

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        return next((place for place in _sets(entry, root) if all(self._halves(place))), None)

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        train, test = self._found(entry, root)
        return len(_listing(train, entry.classes)[0]), len(_listing(test, entry.classes)[0])

    def read(self, entry: KnownSet, root: Path) -> Source:
        train, test = self._found(entry, root)
        halves = _half(entry, train, entry.classes, "train"), _half(entry, test, entry.classes, "test")
        return Source(entry.name, entry.classes, *halves)

    def _found(self, entry: KnownSet, root: Path) -> tuple[Path, Path]:
        train, test = self._halves(self.find(entry, root) or root)
        if train is None or test is None:
            raise DataError(f"there are no train and test folders of {entry.name} under {root}")
        return train, test

    def _halves(self, place: Path) -> tuple[Path | None, Path | None]:
        train, test = (
            next((place / name for name in names if (place / name).is_dir()), None) for names in (self.TRAIN, self.TEST)
        )
        return train, test


class Listed:
    """MNIST-M's own form: `mnist_m_train/00000000.png`, lines `00000000.png 5`; the number is MNIST's row."""

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        lists = ["mnist_m_train_labels.txt", "mnist_m_test_labels.txt"]
        return next((p for p in _sets(entry, root) if all((p / name).is_file() for name in lists)), None)

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        place = self.find(entry, root) or root
        return len(self._lines(place, "train")), len(self._lines(place, "test"))

    def read(self, entry: KnownSet, root: Path) -> Source:
        place = self.find(entry, root) or root
        return Source(entry.name, entry.classes, self._half(entry, place, "train"), self._half(entry, place, "test"))

    def _half(self, entry: KnownSet, place: Path, half: str) -> Split:
        lines = self._lines(place, half)
        images = _decode([place / f"mnist_m_{half}" / name for name, _ in lines], entry.side)
        with reading(place / f"mnist_m_{half}_labels.txt"):
            labels = np.array([int(label) for _, label in lines])
            rows = np.array([int(Path(name).stem) for name, _ in lines])
            return split(f"{entry.identity}/{half}", images, labels, rows)

    def _lines(self, place: Path, half: str) -> list[tuple[str, str]]:
        path = place / f"mnist_m_{half}_labels.txt"
        with reading(path):
            pairs = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
            return [(name, label) for name, label in pairs]


def _half(entry: KnownSet, place: Path, classes: Sequence[str], half: str) -> Split:
    paths, labels = _listing(place, classes)
    with reading(place):
        if not paths:
            raise DataError(f"there are no images in folders named {', '.join(classes[:3])}, ...")
        return split(f"{entry.identity}/{half}", _decode(paths, entry.side), np.array(labels))


def _listing(place: Path, classes: Sequence[str]) -> tuple[list[Path], list[int]]:
    """List image files and labels by class and name, so that the order does not depend on the file system."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = _child(place, name)
        found = sorted(folder.iterdir(), key=lambda path: path.name) if folder else []
        images = [path for path in found if path.suffix.lower() in _SUFFIXES]
        paths += images
        labels += [label] * len(images)
    return paths, labels


def _decode(paths: Sequence[Path], side: int | None) -> Images:
    pillow = late("PIL.Image", "pillow", "reading image files")
    images = []
    for path in paths:
        with reading(path), pillow.open(path) as image:
            colour = image.convert("RGB")
            if side and colour.size != (side, side):
                colour = colour.resize((side, side), pillow.Resampling.LANCZOS)
            images.append(np.asarray(colour, dtype=np.uint8))
            if images[-1].shape != images[0].shape:
                raise DataError(f"images differ in size ({images[0].shape}, {images[-1].shape}): ask for a side")
    return np.stack(images)


def _sets(entry: KnownSet, root: Path) -> list[Path]:
    return [root / folder for folder in entry.folders if (root / folder).is_dir()]


def _classes(places: Sequence[Path]) -> tuple[str, ...]:
    return tuple(sorted({child.name for place in places for child in place.iterdir() if child.is_dir()}))


def _child(place: Path, name: str) -> Path | None:
    """Find the folder of that name. Spaces, case and underscores differ between copies (`Real World`)."""
    folders = sorted(child for child in place.iterdir() if child.is_dir()) if place.is_dir() else []
    return next((child for child in folders if _squash(child.name) == _squash(name)), None)


def _squash(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
