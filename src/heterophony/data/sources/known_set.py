"""What is known about a data set before it is opened: names, terms, official files, how to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from heterophony.data.sources.source import Source


@dataclass(frozen=True)
class PackedFile:
    """A file inside a compressed one, which may also lie unpacked beside it."""

    name: str
    md5: str | None = None


@dataclass(frozen=True)
class File:
    """An official file; `md5` and `url` only where they are known for certain."""

    name: str
    md5: str | None = None
    url: str | None = None
    members: tuple[PackedFile, ...] = ()


class Reader(Protocol):
    """One official format: finds it under a data folder, counts (train, test) cheaply, and reads it."""

    def find(self, entry: KnownSet, root: Path) -> Path | None: ...

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None: ...

    def read(self, entry: KnownSet, root: Path) -> Source: ...


@dataclass(frozen=True)
class KnownSet:
    """A known data set."""

    name: str
    summary: str
    terms: str
    readers: tuple[Reader, ...] = ()
    # The set whose rows `index` counts; another name where the images were taken from that set.
    base: str = ""
    # Plain files `NAME.npz` to look for first.
    npz: tuple[str, ...] = ()
    # Folders under the data folder in which the official files may lie; downloads go to the first.
    folders: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    classes: tuple[str, ...] = ()
    # Images of the whole official set (train, test).
    counts: tuple[int, int] | None = None
    # For sets of domains: this entry's domain and all of them.
    domain: str = ""
    domains: tuple[str, ...] = ()
    # Side to which image files of various sizes are brought when they are read.
    side: int | None = None
    # Bytes of a row of text.
    length: int | None = None

    @property
    def identity(self) -> str:
        """Return the name under which the leakage check knows these images."""
        return self.base or self.name

    @property
    def fetchable(self) -> bool:
        """Return whether all its files can be downloaded.

        Without a checksum, a file could not be told from an error page.
        """
        return bool(self.files) and all(file.url and file.md5 for file in self.files)
