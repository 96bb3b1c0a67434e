"""Texts as JSON lines, gzipped: an object a line with `lang`, `split`, `text` and, where they have one, `label`."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.sources.files import Official, locate, reading
from heterophony.data.sources.known_set import KnownSet
from heterophony.data.sources.source import Source, Split
from heterophony.data.text import NAMES, chopped, padded

LENGTH = {"sequence": 64, "labels": 192}  # bytes a row unless asked otherwise


class Lines(Official):
    """Reads one language of such a file. `dev` is training data: beside `train`, or where there is none, instead."""

    def read(self, entry: KnownSet, root: Path) -> Source:
        (file,) = entry.files
        path = locate(entry, root, file)
        if path is None:
            raise DataError(f"{entry.name}: {file.name} is not under {root}")
        with reading(path):
            found = [row for row in _rows(path, path.stat().st_mtime_ns) if row["lang"] == entry.domain]
            if not found:
                raise DataError(f"{path} has no text in {entry.domain!r}")
            halves = [[row for row in found if (row["split"] == "test") == test] for test in (False, True)]
            make = _labelled if entry.classes else _sequence
            train, test = (make(entry, half, rows) for half, rows in zip(("train", "test"), halves, strict=True))
        return Source(entry.name, entry.classes or NAMES, train, test, parallel=entry.base)


def _sequence(entry: KnownSet, half: str, rows: list[dict[str, Any]]) -> Split:
    x = chopped((row["text"] for row in rows), entry.length or LENGTH["sequence"])
    return Split(f"{entry.identity}/{half}", x, np.zeros(len(x), np.int64), np.arange(len(x)), kind="sequences")


def _labelled(entry: KnownSet, half: str, rows: list[dict[str, Any]]) -> Split:
    # In the order of the numbers that translations have in common: row i is the same sentence in every language.
    rows = sorted(rows, key=lambda row: int(row["id"]))
    x = padded([row["text"] for row in rows], entry.length or LENGTH["labels"])
    labels = np.array([entry.classes.index(row["label"]) for row in rows], np.int64)
    index = np.array([int(row["id"]) for row in rows], np.int64)
    return Split(f"{entry.identity}/{half}", x, labels, index, kind="texts")


@lru_cache(maxsize=2)
def _rows(path: Path, changed: int) -> list[dict[str, Any]]:
    """Read all lines, once for all languages."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
