"""Looking a data set up by name: `load` reads it, `known` says what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heterophony.base.wording import listed, meant
from heterophony.data.errors import DataError
from heterophony.data.root import ENVIRONMENT, Folder, folder
from heterophony.data.sources import own
from heterophony.data.sources.files import locate
from heterophony.data.sources.known_set import KnownSet, Reader
from heterophony.data.sources.known_sets import KNOWN_SETS
from heterophony.data.sources.layout import ArrayLayout
from heterophony.data.sources.npz import Npz
from heterophony.data.sources.source import Source


@dataclass(frozen=True)
class Listing:
    """A known set, where it was found, and how many images it has there."""

    entry: KnownSet
    where: Path | None = None
    train: int | None = None
    test: int | None = None
    problem: str = ""

    @property
    def found(self) -> bool:
        return self.where is not None

    @property
    def partial(self) -> bool:
        """Return whether fewer (or more) images are there than the official set has."""
        return self.train is not None and self.entry.counts not in (None, (self.train, self.test))


def load(
    name: str,
    root: Folder | None = None,
    side: int | None = None,
    length: int | None = None,
    layout: ArrayLayout | None = None,
) -> Source:
    """Read a known set, or one's own.

    `side` is for folders of image files of various sizes, `length` (bytes a row) for texts. `layout` says what is what
    in a file of arrays of one's own.
    """
    return read(replace(_placed(name, root, layout), length=length), root, side)


def require(names: Iterable[str], root: Folder | None = None) -> None:
    """Raise if some of these sets are not there: one line that names all of them, and how to get each."""
    entries = [_placed(name, root) for name in dict.fromkeys(names)]
    if absent := [entry for entry in entries if _found(entry, folder(root)) is None]:
        raise DataError(_absent(absent, root))


def read(entry: KnownSet, root: Folder | None = None, side: int | None = None) -> Source:
    """Read the set that an entry declares: the plain `.npz` if there is one, else the official files."""
    place = folder(root)
    found = _found(entry, place)
    if found is None:
        raise DataError(_absent([entry], root))
    reader, where = found
    source = reader.read(replace(entry, side=side or entry.side), place)
    sides = source.train.x.shape[1:3]
    if side and sides != (side, side):
        raise DataError(f"{where} holds images of {sides[0]}x{sides[1]}: load them as they are, resize afterwards")
    return source


def known(root: Folder | None = None) -> list[Listing]:
    """List all known sets, with place and size of those that are there. Nothing is decoded for it."""
    return [_listing(entry, folder(root)) for entry in KNOWN_SETS.values()]


def lookup(name: str, layout: ArrayLayout | None = None) -> KnownSet:
    """Return the set of that name. `PATH.npz`, `folder:PATH`, `module:callable` and the like are data of one's own."""
    # That a task is asked for is no layout: whoever builds the data knows whether a set goes with it.
    if name in KNOWN_SETS and layout is not None and not _asks_for_a_task(layout):
        raise DataError(f"data.arrays is for files of one's own; {name} is a known data set")
    if name in KNOWN_SETS:
        return KNOWN_SETS[name]
    if mine := own.entry(name, layout):
        return mine
    domains = [other for other in KNOWN_SETS if other.startswith(f"{name}/")]
    if domains:
        raise DataError(f"{name!r} is a set of domains: load one of {', '.join(domains)}")
    raise DataError(
        f"there is no data set {name!r}{meant(name, KNOWN_SETS)}; `heterophony data` lists those that are known, and "
        f"your own are {own.FORMS}"
    )


def _asks_for_a_task(layout: ArrayLayout) -> bool:
    """Return whether a layout says what the targets are, and nothing else."""
    return layout.task != "classification" and replace(layout, task="classification") == ArrayLayout()


def _placed(name: str, root: Folder | None, layout: ArrayLayout | None = None) -> KnownSet:
    """Return the set of that name. One's own data are looked for in the current folder, then in the data folder."""
    return lookup(own.whole(name, Path.cwd(), folder(root)), layout)


def _found(entry: KnownSet, root: Path) -> tuple[Reader, Path] | None:
    readers: tuple[Reader, ...] = (Npz(), *entry.readers)
    places = ((reader, reader.find(entry, root)) for reader in readers)
    return next(((reader, where) for reader, where in places if where), None)


def _listing(entry: KnownSet, root: Path) -> Listing:
    try:
        found = _found(entry, root)
        if found is None:
            return Listing(entry)
        reader, where = found
        counts = reader.count(entry, root) or (None, None)
        return Listing(entry, where, *counts)
    except (DataError, OSError) as error:
        return Listing(entry, problem=str(error))


def _absent(entries: Sequence[KnownSet], root: Folder | None) -> str:
    """Say what is missing, which command fetches what can be fetched, and where to put files for the rest."""
    place = folder(root)
    if mine := [entry for entry in entries if own.path_of(entry.name)]:
        return own.absent(mine[0].name, place)
    there = f"{listed([entry.name for entry in entries])} {'is' if len(entries) == 1 else 'are'} not under {place}"
    fetched = [entry.name for entry in entries if entry.fetchable]
    ways = []
    if fetched:
        which = "" if root is None else f" --data {place}"
        ways.append(f"run `heterophony data{which} {' '.join(f'--fetch {name}' for name in fetched)}`")
    if by_hand := [entry for entry in entries if len(entries) == 1 or not entry.fetchable]:
        ways.append(f"put {_all_wanted(by_hand, place)} there")
    joined = (" or " if len(entries) == 1 else " and ").join(ways)
    return f"{there}: {joined}, or set {ENVIRONMENT} to another folder"


def _all_wanted(entries: Sequence[KnownSet], root: Path) -> str:
    """Say which files or folders would do for sets; those that lie together are named once."""
    together: dict[tuple[object, ...], list[KnownSet]] = {}
    for entry in entries:
        together.setdefault((entry.npz, entry.files, entry.folders), []).append(entry)
    return " and ".join(_wanted(group, root) for group in together.values())


def _wanted(entries: Sequence[KnownSet], root: Path) -> str:
    """Say which files or folders would do for sets that lie together."""
    first = entries[0]
    forms = [f"{name}.npz" for name in first.npz]
    missing = [file for file in first.files if locate(first, root, file) is None]
    if missing:
        where = "" if first.folders[0] == "." else f" (in {first.folders[0]})"
        forms.append(f"{' and '.join(file.name for file in missing)}{where}")
    elif first.folders:
        inside = [entry.domain for entry in entries if entry.domain]
        several = f" with {', '.join(inside)}" if len(inside) > 1 else f"/{''.join(inside)}".rstrip("/")
        forms.append(f"a folder {first.folders[0]}{several}")
    return " or ".join(forms)
