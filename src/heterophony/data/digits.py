"""A thousand real MNIST digits that come with the package, so that a first run needs no download."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np

from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Source, empty, split


class Embedded:
    """Reads `digits.npz` beside this file; terms and origin are in DIGITS.md."""

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        return Path(str(resources.files("heterophony.data") / "digits.npz"))

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return entry.counts

    def read(self, entry: KnownSet, root: Path) -> Source:
        # Through the resource, not the path: the package may be a zip file.
        packed = resources.files("heterophony.data") / "digits.npz"
        with packed.open("rb") as stream, np.load(stream) as arrays:
            train = split(f"{entry.identity}/train", arrays["x"], arrays["y"], arrays["index"])
        return Source(entry.name, entry.classes, train, empty(f"{entry.identity}/test", train))
