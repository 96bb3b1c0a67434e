"""Files that hold one array: `.npy`, and `.txt` with numbers between spaces, one row a line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heterophony.data.errors import DataError
from heterophony.data.sources.files import reading

Column = npt.NDArray[Any]
SUFFIXES = (".npy", ".txt")


def array(path: Path) -> Column:
    """Return the array of a file. Nothing is ever unpickled."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with reading(path):
        return _npy(path) if path.suffix == ".npy" else _txt(path)


def _npy(path: Path) -> Column:
    try:
        found = np.load(path, allow_pickle=False)
    except ValueError as error:
        if "pickle" not in str(error) and "Object arrays" not in str(error):
            raise
        raise DataError("it holds Python objects, or is no .npy file: write numbers with numpy.save") from None
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} is no .npy file: write it with numpy.save")
    return found


def _txt(path: Path) -> Column:
    """Read numbers between spaces. Lines of one number make one axis: labels or groups, mostly."""
    text = path.read_text(encoding="utf-8-sig")
    if not text.split():
        raise DataError("there are no rows")
    try:
        found = np.loadtxt(io.StringIO(text), dtype=np.float64, ndmin=2, comments=None)
    except ValueError:
        _check_lines(text)
        raise
    return found[:, 0] if found.shape[1] == 1 else found


def _check_lines(text: str) -> None:
    """Raise where a line has another number of values than the first, or one that is no number."""
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        first = first or len(words)
        if len(words) != first:
            raise DataError(f"line {number}: there are {len(words)} values, the first line has {first}")
        for word in words:
            if not is_number(word):
                raise DataError(f"line {number}: {word!r} is no number")


def is_number(word: str) -> bool:
    """Return whether a word is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
