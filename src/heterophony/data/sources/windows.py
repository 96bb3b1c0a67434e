"""Rows that are steps in time, cut into windows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heterophony.data.errors import DataError
from heterophony.data.sources.columns import Column, Columns
from heterophony.data.sources.layout import TimeWindow
from heterophony.data.sources.source import Labels

Starts = npt.NDArray[np.int64]


def starts(window: TimeWindow, file: Columns, rows: int, groups: Column | None) -> Starts:
    """Return the first step of each window. None reaches into another file, or from one group into the next."""
    found = [
        np.arange(first, last - window.rows + 1, window.stride)
        for first, last in zip(*_stretches(file, rows, groups), strict=True)
    ]
    made = np.concatenate([np.empty(0, np.int64), *found])
    _check_none_lost(window, file, rows, groups, made)
    return made


def cut(x: Column, at: Starts, window: TimeWindow) -> Column:
    """Return windows of rows, whose last axis is time: (steps, channels) become (windows, channels, steps)."""
    views = np.lib.stride_tricks.sliding_window_view(x, window.rows, axis=0)
    return np.ascontiguousarray(views[at])


def labels(y: Labels, at: Starts, window: TimeWindow) -> Labels:
    """Return the label of each window: that of most of its steps, or of its last one."""
    if window.label == "last":
        return y[at + window.rows - 1]
    return np.array([np.bincount(y[first : first + window.rows]).argmax() for first in at], dtype=np.int64)


def _stretches(file: Columns, rows: int, groups: Column | None) -> tuple[Starts, Starts]:
    """Return where each stretch of steps of one file and one group begins and ends."""
    begin = {0, *file.starts}
    if groups is not None:
        begin |= {int(row) + 1 for row in np.flatnonzero(groups[1:] != groups[:-1])}
    first = np.array(sorted(begin), dtype=np.int64)
    return first, np.append(first[1:], rows)


def _check_none_lost(window: TimeWindow, file: Columns, rows: int, groups: Column | None, made: Starts) -> None:
    """Raise where a whole file, or all of a group, is shorter than a window."""
    owner = np.searchsorted(np.array(file.starts), np.arange(rows), side="right") if groups is None else groups
    lost = ~np.isin(owner, owner[made])
    if not lost.any():
        return
    row = int(np.flatnonzero(lost)[0])
    place = file.where(row) if file.where else f"{file.path}: row {row}"
    steps = "no stretch" if groups is None else f"no stretch of group {groups[row]!s}"
    raise DataError(f"{place}: {steps} from here has the {window.rows} steps of a window (data.arrays.window)")
