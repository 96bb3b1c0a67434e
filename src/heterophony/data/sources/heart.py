"""The heart disease data of four hospitals, prepared as FLamby prepares them for its Fed-Heart-Disease.

Columns 11 to 13 are dropped, and then the rows in which a value is missing. Columns 3 and 7 are categories, each level
but the first of which becomes a column. The label is 0 or more. The test half is drawn once for all. A hospital's
values are standardised by its own training rows; those of all hospitals together by the training rows of all.

Paper: du Terrail et al., FLamby, NeurIPS 2022 (datasets and benchmarks).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heterophony.data.errors import DataError
from heterophony.data.sources.files import Official, contents
from heterophony.data.sources.known_set import File, KnownSet
from heterophony.data.sources.source import Source, Split

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FILES = tuple(File(f"processed.{hospital}.data") for hospital in HOSPITALS)
CLASSES = ("healthy", "ill")
COLUMNS = 14
KEPT = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13)
NUMBERS = (0, 1, 3, 4, 5, 7, 8, 9)
CATEGORIES = {2: (1, 2, 3, 4), 6: (0, 1, 2)}  # kind of chest pain, electrocardiogram at rest
MISSING = ("?", "-9", "-9.0")
TRAIN, SEED = 0.66, 43
MOST_ROWS = 1000  # of a hospital, more than any has: numbers of rows begin there for the next one

Numbers = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


class Heart(Official):
    """Reads one hospital, or all of them with the hospital as the group of each row."""

    def read(self, entry: KnownSet, root: Path) -> Source:
        wanted = (entry.domain,) if entry.domain else HOSPITALS
        halves: list[list[Split]] = [[], []]
        for hospital, file in zip(wanted, entry.files, strict=True):
            for half, made in zip(halves, _hospital(entry, root, hospital, file), strict=True):
                half.append(made)
        train, test = (_together(half) for half in halves)
        return Source(entry.name, CLASSES, *_standardised(train, test))


def _hospital(entry: KnownSet, root: Path, hospital: str, file: File) -> tuple[Split, Split]:
    """Return the two halves of a hospital."""
    values, lines = _complete(file.name, contents(entry, root, file).decode("utf-8", "replace"))
    columns = [values[:, NUMBERS], *(_levels(file.name, values, lines, at) for at in CATEGORIES)]
    x = np.concatenate(columns, axis=1).astype(np.float32)
    y = (values[:, -1] > 0).astype(np.int64)
    train, test = division(y)
    index = HOSPITALS.index(hospital) * MOST_ROWS + lines
    groups = np.full(len(x), hospital)

    def half(name: str, rows: Rows) -> Split:
        base = f"{entry.identity}/{name}"
        return Split(base, x[rows], y[rows], index[rows], kind="arrays", groups=groups[rows])

    return half("train", train), half("test", test)


def _complete(name: str, text: str) -> tuple[Numbers, Rows]:
    """Return the rows in which nothing is missing in the columns that are kept, and their numbers."""
    found, lines = [], []
    for line, words in enumerate(text.splitlines()):
        cells = [word.strip() for word in words.split(",")]
        if len(cells) != COLUMNS:
            raise DataError(f"{name}: line {line + 1}: there are {len(cells)} values, not {COLUMNS}: replace the file")
        if any(cells[at] in MISSING for at in KEPT):
            continue
        try:
            found.append([float(cells[at]) if at in KEPT else np.nan for at in range(COLUMNS)])
        except ValueError:
            raise DataError(f"{name}: line {line + 1}: a value is no number: replace the file") from None
        lines.append(line)
    if not found:
        raise DataError(f"{name}: no row is complete: replace the file")
    return np.array(found), np.array(lines)


def _levels(name: str, values: Numbers, lines: Rows, column: int) -> Numbers:
    """Return a column of 0 and 1 for each level of a category but the first."""
    first, *others = CATEGORIES[column]
    for row in np.flatnonzero(~np.isin(values[:, column], (first, *others)))[:1]:
        raise DataError(
            f"{name}: line {lines[row] + 1}: column {column + 1} is {values[row, column]:g}, "
            f"not one of {', '.join(map(str, CATEGORIES[column]))}: replace the file"
        )
    found: Numbers = (values[:, [column]] == others).astype(np.float64)
    return found


def _together(parts: list[Split]) -> Split:
    first = parts[0]
    x, y, index = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "index"))
    groups = np.concatenate([part.groups for part in parts if part.groups is not None])
    return Split(first.base, x, y, index, kind="arrays", groups=groups)


def _standardised(train: Split, test: Split) -> tuple[Split, Split]:
    """Return both halves by the mean and the deviation of the first. A column may be constant there."""
    values = train.x.astype(np.float64)
    mean, deviation = values.mean(0), values.std(0, ddof=1) + 1e-9
    made = (replace(half, x=((half.x - mean) / deviation).astype(np.float32)) for half in (train, test))
    return next(made), next(made)


# -- the split -------------------------------------------------------------------------------------------------
def division(y: Rows) -> tuple[Rows, Rows]:
    """Return the rows to train and to test on, each in the order of the file.

    These are the rows of scikit-learn's `train_test_split(random_state=43)`, stratified where each class has more than
    two rows. It draws from numpy's old generator, whose numbers never change.
    """
    draw = np.random.RandomState(SEED)
    wanted = int(np.floor(TRAIN * len(y))), int(np.ceil((1 - TRAIN) * len(y)))
    sizes = np.bincount(y)
    if min(sizes) <= 2 or len(sizes) < 2:
        order = draw.permutation(len(y))
        return np.sort(order[wanted[1] : sum(wanted)]), np.sort(order[: wanted[1]])
    train_sizes = _shares(sizes, wanted[0], draw)
    test_sizes = _shares(sizes - train_sizes, wanted[1], draw)
    train, test = [], []
    for label, (many, few) in enumerate(zip(train_sizes, test_sizes, strict=True)):
        own = np.flatnonzero(y == label)[draw.permutation(sizes[label])]
        train.append(own[:many])
        test.append(own[many : many + few])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _shares(sizes: Rows, total: int, draw: np.random.RandomState) -> Rows:
    """Return how many of `total` rows each class gives; what is left over goes to the largest remainders."""
    exact = sizes / sizes.sum() * total
    found: Rows = np.floor(exact).astype(np.int64)
    remainder = exact - found
    left = int(total - found.sum())
    for value in np.unique(remainder)[::-1]:
        if not left:
            break
        (equal,) = np.nonzero(remainder == value)
        chosen = draw.choice(equal, size=min(len(equal), left), replace=False)
        found[chosen] += 1
        left -= len(chosen)
    return found
