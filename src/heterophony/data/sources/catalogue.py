"""Looking a data set up by name: `load` reads it, `known` says what there is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from heterophony.data.errors import DataError
from heterophony.data.root import ENVIRONMENT, Folder, folder
from heterophony.data.sources.entries import ENTRIES
from heterophony.data.sources.entry import Entry, Reader
from heterophony.data.sources.files import locate
from heterophony.data.sources.folders import Pictures
from heterophony.data.sources.npz import Npz
from heterophony.data.sources.source import Source

OWN = "folder:"  # before the path of a folder of images


@dataclass(frozen=True)
class Listing:
    """A known set, where it was found, and how many images it has there."""

    entry: Entry
    where: Path | None = None
    train: int | None = None
    test: int | None = None
    problem: str = ""

    @property
    def found(self) -> bool:
        return self.where is not None

    @property
    def partial(self) -> bool:
        """Whether fewer (or more) images are there than the official set has."""
        return self.train is not None and self.entry.counts not in (None, (self.train, self.test))


def load(name: str, root: Folder | None = None, side: int | None = None, length: int | None = None) -> Source:
    """Read a known set; `side` is for folders of image files of various sizes, `length` (bytes a row) for texts."""
    return read(replace(lookup(name), length=length), root, side)


def read(entry: Entry, root: Folder | None = None, side: int | None = None) -> Source:
    """Read the set that an entry declares: the plain `.npz` if there is one, else the official files."""
    place = folder(root)
    found = _found(entry, place)
    if found is None:
        raise DataError(_absent(entry, place))
    reader, where = found
    source = reader.read(replace(entry, side=side or entry.side), place)
    sides = source.train.x.shape[1:3]
    if side and sides != (side, side):
        raise DataError(f"{where} holds images of {sides[0]}x{sides[1]}: load them as they are, resize afterwards")
    return source


def known(root: Folder | None = None) -> list[Listing]:
    """All known sets, with place and size of those that are there; nothing is decoded for it."""
    return [_listing(entry, folder(root)) for entry in ENTRIES.values()]


def lookup(name: str) -> Entry:
    """The entry of that name; `folder:PATH` is any folder of images, in the data folder or elsewhere."""
    if name in ENTRIES:
        return ENTRIES[name]
    if name.startswith(OWN):
        path = str(Path(name.removeprefix(OWN)).expanduser())
        return Entry(name, "images of one's own", "one's own", (Pictures(),), folders=(path,), side=64)
    domains = [other for other in ENTRIES if other.startswith(f"{name}/")]
    if domains:
        raise DataError(f"{name!r} is a set of domains: load one of {', '.join(domains)}")
    near = get_close_matches(name, ENTRIES, n=1)
    meant = f", perhaps you meant {near[0]!r}" if near else ""
    raise DataError(f"there is no data set {name!r}{meant}; known are {', '.join(ENTRIES)}")


def _found(entry: Entry, root: Path) -> tuple[Reader, Path] | None:
    readers: tuple[Reader, ...] = (Npz(), *entry.readers)
    places = ((reader, reader.find(entry, root)) for reader in readers)
    return next(((reader, where) for reader, where in places if where), None)


def _listing(entry: Entry, root: Path) -> Listing:
    try:
        found = _found(entry, root)
        if found is None:
            return Listing(entry)
        reader, where = found
        counts = reader.count(entry, root) or (None, None)
        return Listing(entry, where, *counts)
    except (DataError, OSError) as error:
        return Listing(entry, problem=str(error))


def _absent(entry: Entry, root: Path) -> str:
    forms = [f"{name}.npz" for name in entry.npz]
    missing = [file for file in entry.files if locate(entry, root, file) is None]
    if missing:
        forms.append(f"{' and '.join(file.name for file in missing)} (in {entry.folders[0]})")
    elif entry.folders:
        forms.append(f"a folder {entry.folders[0]}/{entry.domain}".rstrip("/"))
    wanted = " or ".join(forms)
    return f"{entry.name} is not under {root}: put {wanted} there, or set {ENVIRONMENT} to another folder"
