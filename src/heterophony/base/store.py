"""Rows of bytes by name in one file: a million small ones need neither a million files nor memory.

The file consists of slots. A row that is written again goes into a free slot. The slot that it had becomes free when
the next commit stands. So whoever is killed leaves the rows of the last commit, at whatever write that happens.

A second file is the index: a line for each row that a commit has added (name, slot, bytes, mark). What to commit, and
where, is for the caller to keep: `prepare` says it, and `settle` is called when it is kept.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from heterophony.base.disk import Disk

UNIT = 256  # bytes: slots begin at multiples of it
STALE = 3  # an index with so many times more lines than there are rows is written anew
_SUM = struct.Struct("16s")  # stands before each row: a checksum of its name and content
_LENGTH = 32  # bits of a row's length, the lower ones of its place


class Damaged(ValueError):
    """A row, or an index, that is not what was written."""


class Store:
    """Rows of one process. Without a folder they lie in a file that nobody else sees, and are gone with the process."""

    def __init__(self, folder: Path | None = None, disk: Disk | None = None) -> None:
        self.folder, self.disk = folder, disk or Disk()
        self.rows = "nodes.hph"
        self.index = ""  # the file of the last commit
        self.lines = self.length = 0  # of that file
        self.sum = hashlib.sha256()  # of that file
        self.places: dict[str, int] = {}  # slot and length in one number: a million pairs would take more memory
        self.marked: set[str] = set()
        self.fresh: dict[str, None] = {}  # written since the last commit
        self.replaced: list[int] = []  # places that the last commit knows, and the next will not
        self.free: dict[int, list[int]] = {}  # slots by their size, both in units
        self.end = 0  # where new slots begin, in units
        self._file: FileIO | None = None

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    # -- rows ------------------------------------------------------------------------------------------------
    def put(self, name: str, data: bytes, mark: bool = False) -> None:
        """Write a row. `marked` are the names of those with a mark."""
        if (old := self.places.get(name)) is not None:
            if name in self.fresh:
                self._give_back(old)
            else:
                self.replaced.append(old)
        size = _units(len(data))
        if self.free.get(size):
            start = self.free[size].pop()
        else:
            start, self.end = self.end, self.end + size
        # Filled up, so that a file is never shorter than its slots.
        content = _SUM.pack(_checksum(name, data)) + data
        self.disk.place(self._opened(), start * UNIT, content.ljust(size * UNIT, b"\0"))
        self.places[name] = start << _LENGTH | len(data)
        self.fresh[name] = None
        (self.marked.add if mark else self.marked.discard)(name)

    def get(self, name: str) -> bytes:
        """Return a row. Raise `Damaged` if it is not what was written."""
        start, length = _place(self.places[name])
        file = self._opened()
        file.seek(start * UNIT)
        content: bytes = file.read(_SUM.size + length)
        data = content[_SUM.size :]
        if len(data) != length or content[: _SUM.size] != _checksum(name, data):
            raise Damaged("its checksum differs")
        return data

    def check(self) -> None:
        """Raise `Damaged` unless all rows are what was written, in the order in which they lie."""
        for name in sorted(self.places, key=self.places.__getitem__):
            self.get(name)

    def _opened(self) -> FileIO:
        if self._file is None:
            if self.folder is None:
                self._file = tempfile.TemporaryFile(prefix="heterophony-", buffering=0)  # noqa: SIM115 (as long as the store)
            else:
                self._file = self.disk.opened(self.folder / self.rows)
        return self._file

    def _give_back(self, place: int) -> None:
        start, length = _place(place)
        self.free.setdefault(_units(length), []).append(start)

    # -- commits ---------------------------------------------------------------------------------------------
    def prepare(self, generation: int) -> dict[str, Any]:
        """Make all rows durable. Return what has to be kept of them, as plain values; then call `settle`."""
        assert self.folder is not None
        if self._file is not None:
            self.disk.settle(self._file)
        if not self.index or self.lines + len(self.fresh) > STALE * len(self.places) + 1000:
            self.index, self.lines, self.length, self.sum = f"index.{generation}.hph", 0, 0, hashlib.sha256()
            self.fresh = dict.fromkeys(self.places)
        data = "".join(self._line(name) for name in self.fresh).encode()
        self.disk.append(self.folder / self.index, data)
        self.lines += len(self.fresh)
        self.length += len(data)
        self.sum.update(data)
        about = {"rows": self.rows, "bytes": self.end * UNIT, "index": self.index, "length": self.length}
        return {**about, "sum": self.sum.hexdigest()}

    def settle(self) -> None:
        """Take the rows as committed: what they have replaced is free from now on."""
        for place in self.replaced:
            self._give_back(place)
        self.replaced.clear()
        self.fresh.clear()

    def _line(self, name: str) -> str:
        start, length = _place(self.places[name])
        return f"{name} {start} {length} {int(name in self.marked)}\n"

    @classmethod
    def open(cls, folder: Path, about: Mapping[str, Any], disk: Disk | None = None) -> Store:
        """Return the rows of a commit. Raise `Damaged` if they cannot be: nothing is changed by that."""
        made = cls(folder, disk)
        made.rows, made.index, made.length = about["rows"], about["index"], about["length"]
        with open(folder / made.index, "rb") as file:
            data = file.read(made.length)
        made.sum.update(data)
        if len(data) < made.length or made.sum.hexdigest() != about["sum"]:
            raise Damaged("the checksum of its index differs")
        for line in data.decode().splitlines():
            name, start, length, mark = line.split(" ")
            made.places[name] = int(start) << _LENGTH | int(length)
            (made.marked.add if mark == "1" else made.marked.discard)(name)
            made.lines += 1
        made.end = about["bytes"] // UNIT
        if made.end and (folder / made.rows).stat().st_size < about["bytes"]:
            raise Damaged("it is cut short")
        made._find_free()
        return made

    def cut(self) -> None:
        """Cut off what was added to the index behind the last commit."""
        assert self.folder is not None
        path = self.folder / self.index
        if path.stat().st_size > self.length:
            self.disk.truncate(path, self.length)

    def _find_free(self) -> None:
        """Find the slots that no row is in. Gaps are cut into slots of the size that most rows have."""
        taken = sorted((start, _units(length)) for start, length in map(_place, self.places.values()))
        usual = max(Counter(size for _, size in taken).items(), key=lambda item: item[1], default=(1, 0))[0]
        before = 0
        for start, size in [*taken, (self.end, 0)]:
            while before < start:
                piece = min(usual, start - before)
                self.free.setdefault(piece, []).append(before)
                before += piece
            before = start + size


def _place(place: int) -> tuple[int, int]:
    """Return where a row begins, in units, and how many bytes it has."""
    return place >> _LENGTH, place & (1 << _LENGTH) - 1


def _units(length: int) -> int:
    """Return the size of a row's slot. There are few different sizes, so that free slots fit again."""
    units = -(-(length + _SUM.size) // UNIT)
    step = 1 << max(0, units.bit_length() - 4)
    return -(-units // step) * step


def _checksum(name: str, data: bytes) -> bytes:
    made = hashlib.blake2b(name.encode(), digest_size=_SUM.size)
    made.update(data)
    return made.digest()
