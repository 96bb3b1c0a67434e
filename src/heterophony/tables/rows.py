"""Rows in the order in which they came. Of very many, the earlier ones lie in a file, and are read from there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, overload

Row = dict[str, Any]
MOST = 100_000  # rows that are held in memory: some 40 MB
_CHUNK = 2**20


class RowLog(Sequence[Row]):
    """A list of rows to which more are added.

    Beyond `MOST` rows a run folder calls `leave` for those that it has written. Without one, `spill` writes them into
    a file that nobody else sees. Rows that are read from a file are plain values, as those of a resumed run.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.file: FileIO | None = None
        self.there = self.length = 0  # rows in the file, and their bytes
        self.here: list[Row] = []  # those that came later
        if isinstance(rows, RowLog):
            self.file, self.there, self.length = rows.file, rows.there, rows.length
            rows = rows.here
        self.here += rows

    def append(self, row: Row) -> None:
        self.here.append(row)

    def __iadd__(self, rows: Iterable[Row]) -> RowLog:
        self.here += rows
        return self

    def __len__(self) -> int:
        return self.there + len(self.here)

    def __iter__(self) -> Iterator[Row]:
        yield from map(json.loads, self._lines())
        yield from self.here

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, int):
            return self[at:][0] if at == -1 else self[at : at + 1][0]
        start, stop, step = at.indices(len(self))
        if start >= self.there and step > 0:
            return self.here[start - self.there : max(0, stop - self.there) : step]
        return list(islice(self, start, stop, step)) if step > 0 else list(self)[at]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, RowLog) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def leave(self, path: Path, length: int) -> None:
        """Let go of all rows, if they are many: they stand in the first so many bytes of a file, a line each."""
        if len(self.here) > MOST:
            self.file = self.file or FileIO(str(path), "r")  # open, so that it is there as long as the rows are
            self.there, self.length = len(self), length
            self.here = []

    def spill(self) -> None:
        """Write the rows to a file of our own, if they are many."""
        if len(self.here) > MOST:
            self.file = self.file or tempfile.TemporaryFile(prefix="heterophony-", buffering=0)  # noqa: SIM115
            data = lines(self.here)
            self.file.seek(self.length)
            while data:
                written = self.file.write(data)
                self.length, data = self.length + written, data[written:]
            self.there, self.here = len(self), []

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines in the file, of which others may read at the same time."""
        file, at, end, rest = self.file, 0, self.length, b""
        while file is not None and at < end:
            file.seek(at)
            data = file.read(min(_CHUNK, end - at))
            if not data:
                raise OSError(f"{file.name} is cut short: {at} of {end} bytes")
            at += len(data)
            *whole, rest = (rest + data).split(b"\n")
            yield from whole


def lines(rows: Iterable[Row]) -> bytes:
    """Return rows as they stand in a file, a line each."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
