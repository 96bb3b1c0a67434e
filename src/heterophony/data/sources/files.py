"""Official files on disk: finding them, and reading them only after their checksum was seen to be right."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heterophony.data.errors import DataError
from heterophony.data.sources.known_set import File, KnownSet, PackedFile


class Official:
    """The part that all readers of fixed official files share: they are found by name."""

    def find(self, entry: KnownSet, root: Path) -> Path | None:
        places = [locate(entry, root, file) for file in entry.files]
        return places[0] if places and all(places) else None

    def count(self, entry: KnownSet, root: Path) -> tuple[int, int] | None:
        return entry.counts


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file causes into one line that names the file."""
    try:
        yield
    except DataError as error:
        text = str(error)
        raise DataError(text if str(path) in text else f"{path}: {text}") from None
    except Exception as error:  # every format has its own errors, and a damaged file may cause any of them
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be read ({reason}): replace the file") from error


def locate(entry: KnownSet, root: Path, file: File) -> Path | None:
    """Return the file itself, or its first packed file where all of these lie unpacked; None: neither is there."""
    for place in _places(entry, root):
        unpacked = [place / member.name for member in file.members]
        if unpacked and all(path.is_file() for path in unpacked):
            return unpacked[0]
        if (place / file.name).is_file():
            return place / file.name
    return None


def contents(entry: KnownSet, root: Path, file: File) -> bytes:
    """Return the verified bytes of an official file that holds no others."""
    for place in _places(entry, root):
        if (place / file.name).is_file():
            return verified(place / file.name, file.md5)
    raise DataError(f"{entry.name}: {file.name} is not under {root}")


def unpacked(entry: KnownSet, root: Path, file: File) -> dict[str, bytes]:
    """Return the verified bytes of all packed files by base name, unpacked already or from the compressed one."""
    for place in _places(entry, root):
        if all((place / member.name).is_file() for member in file.members):
            return {_short(m): verified(place / m.name, m.md5) for m in file.members}
        if (place / file.name).is_file():
            return _decompress(place / file.name, file)
    raise DataError(f"{entry.name}: {file.name} is not under {root}")


def verified(path: Path, md5: str | None) -> bytes:
    """Read a file, and check its checksum."""
    with reading(path):
        data = path.read_bytes()
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 is not None and found != md5:
        raise DataError(f"{path} is not the official file (md5 {found}, expected {md5}): replace the file")
    return data


def late(module: str, package: str, what: str) -> Any:
    """Import an optional module when it is first needed: the extra `data` has all of them."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"{what} needs {package}: pip install 'heterophony[data]'") from None


def _decompress(path: Path, file: File) -> dict[str, bytes]:
    data = verified(path, file.md5)
    with reading(path):
        if path.name.endswith(".tar.gz"):
            # Read in memory and by name: nothing is ever extracted to a path that an archive chose.
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
                return {_short(member): _extract(archive, member) for member in file.members}
        return {_short(file.members[0]): gzip.decompress(data)}


def _extract(archive: tarfile.TarFile, member: PackedFile) -> bytes:
    stream = archive.extractfile(member.name)
    if stream is None:
        raise DataError(f"{member.name} is not a plain file in the archive")
    return stream.read()


def _short(member: PackedFile) -> str:
    return member.name.rpartition("/")[2]


def _places(entry: KnownSet, root: Path) -> list[Path]:
    return [root / folder for folder in entry.folders]
