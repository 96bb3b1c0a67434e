"""A node's own disk: its state and its last answer in one file, its ledger, its figures, its receipts,
and what it refused.

A reaction's state, its answer and the lengths of the tables commit by one rename, so that a crash at any moment leaves
all of a reaction or none of it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from heterophony.base import codec
from heterophony.base.disk import Disk
from heterophony.deploy.named_function import DeployError

FORMAT = 1
TABLES = ("ledger", "metrics", "receipts")
_SUM = struct.Struct("32s")
log = logging.getLogger("heterophony.node")


@dataclass
class Memory:
    """What a node remembers: how many reactions it has done, how it stood after the last, and what it answered."""

    applied: int = 0
    asked: str = ""  # a hash of the last question, to tell a repetition from another one of the same number
    answer: dict[str, Any] | None = None
    state: dict[str, Any] | None = None
    lengths: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))


class NodeStore:
    """A folder that one process at a time works in."""

    def __init__(self, folder: Path, federation: str, disk: Disk | None = None) -> None:
        self.folder, self.federation, self.disk = folder, federation, disk or Disk()
        self.file = folder / f"{federation}.hph"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one question. After a restart there may be a second process, which waits."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(str(self.folder / "lock")):
            yield

    def load(self) -> Memory:
        """Return the memory as it was after the last reaction, and cut the tables to what belongs to it."""
        memory = self.peek()
        for table in TABLES:
            path, length = self.table(table), memory.lengths[table]
            size = path.stat().st_size if path.exists() else 0
            if size < length:
                raise DeployError(f"{path} is cut short: {size} of {length} bytes")
            if size > length:
                self.disk.truncate(path, length)
        return memory

    def peek(self) -> Memory:
        """Return the same, only to look at: nothing is cut."""
        try:
            return self._memory(self.file.read_bytes())
        except FileNotFoundError:
            return Memory()

    def _memory(self, data: bytes) -> Memory:
        body = data[_SUM.size :]
        if hashlib.sha256(body).digest() != data[: _SUM.size]:
            raise DeployError(f"{self.file} is damaged (its checksum differs): put a backup of it back")
        value = codec.unpack(body)
        if value["format"] != FORMAT or value["federation"] != self.federation:
            raise DeployError(f"{self.file} is of another federation or format")
        value["lengths"] = {**dict.fromkeys(TABLES, 0), **value["lengths"]}  # a state from before there were receipts
        return Memory(**{name: value[name] for name in Memory.__dataclass_fields__})

    def save(self, memory: Memory, **rows: Sequence[dict[str, Any]]) -> None:
        """Add rows to the tables, then commit all at once."""
        for table, new in rows.items():
            data = "".join(json.dumps(row) + "\n" for row in new).encode()
            if data:
                self.disk.append(self.table(table), data)
            memory.lengths[table] += len(data)
        body = codec.pack({"format": FORMAT, "federation": self.federation, **vars(memory)})
        self.disk.replace(self.file, hashlib.sha256(body).digest() + body)

    def table(self, name: str) -> Path:
        return self.folder / f"{self.federation}.{name}.jsonl"

    def note(self, what: str, detail: str) -> None:
        """Log what was refused or went wrong. It is no part of the state, and no reason to fail."""
        row = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "incident": what, "detail": detail}
        path = self.table("incidents")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.disk.append(path, (_newline(path) + json.dumps(row) + "\n").encode())
        except OSError as error:  # a full disk, most likely
            log.error("%s: %s could not be noted (%s)", path, what, error.strerror)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table without one that is cut off: its writer was killed, or is still writing."""
        path = self.table(table)
        found = []
        for line in path.read_text().splitlines() if path.exists() else ():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found


def _newline(path: Path) -> str:
    """Return what must come before the next line: the last one may have been cut off."""
    if not path.exists() or not path.stat().st_size:
        return ""
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return "" if file.read() == b"\n" else "\n"
