"""Runs of experiments in one small file, to be carried from a borrowed machine, and put among the runs that are here.

The file is a tar archive. Its first member, `archive.json`, says who wrote it, and names each file with its size and
checksum. A finished run has no weights in it: its tables and its result are enough for a figure. A run that is not
finished has its whole snapshot, so that it goes on.

What is in an archive is looked at as a whole before anything here is changed. A file of an archive is only ever written
where its name says, below the folder that the user names. Nothing of it is imported.
"""

from __future__ import annotations

import io
import lzma
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heterophony.base.disk import Disk
from heterophony.base.seal import digest, opened, sealed
from heterophony.runs.folder import find
from heterophony.runs.run import Run, RunError, refuse_other

FORMAT = 1
HEADER = "archive.json"
STAGING = ".merging-"
MOST = 64 * 2**20  # bytes of the header
PART = re.compile(r"[A-Za-z0-9=+_-][A-Za-z0-9.=+_-]*")  # a folder's or a file's name; none begins with a dot
FILES = re.compile(r"[a-z_-]+\.(json|jsonl)|snapshot/(manifest\.json|[A-Za-z0-9.=+_-]+\.hph)")


class ArchiveError(ValueError):
    """An archive that cannot be used; one line that says why."""


@dataclass(frozen=True)
class Merged:
    """What became of each run of an archive, by its folder below the root."""

    new: tuple[str, ...]
    further: tuple[str, ...]  # the archive's had more rounds than the one that was here
    kept: tuple[str, ...]  # what was here is as far, or further


def pack(root: Path, archive: Path) -> dict[str, Any]:
    """Write all runs below a folder into one file. Return what its header says."""
    from heterophony import __version__

    contents: dict[str, bytes] = {}
    runs: dict[str, bool] = {}
    for folder in find([root]):
        name = folder.relative_to(root).as_posix()
        if name.startswith(STAGING):  # what a merge has left that was killed
            continue
        _check_folder(name, archive)
        with Run.reading(folder) as run:
            runs[name] = (folder / "result.json").exists()
            for file in _files(run, weights=not runs[name]):
                contents[f"{name}/{file}"] = (folder / file).read_bytes()
    files = {name: [len(data), digest(data)] for name, data in contents.items()}
    header = {"format": FORMAT, "heterophony": __version__, "runs": runs, "files": files}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as tar:
        for name, data in {HEADER: sealed(header), **contents}.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    archive.parent.mkdir(parents=True, exist_ok=True)
    Disk(private=False).replace(archive, made.getvalue())
    return header


def _files(run: Run, weights: bool) -> list[str]:
    """Return the names of a run's files that are worth carrying."""
    found = [path.name for path in sorted(run.folder.glob("*.json*")) if FILES.fullmatch(path.name)]
    if not run.exists:
        return found
    run.check()
    return [*found, "snapshot/manifest.json", *(f"snapshot/{name}" for name in run.named if weights)]


def merge(archive: Path, root: Path) -> Merged:
    """Put the runs of an archive among those below a folder. What is here and as far stays as it is.

    Raise, and change nothing, if the archive is damaged, or holds another run than the one that is in its place.
    """
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=root))
    try:
        header = _unpack(archive, staging)
        found: dict[str, list[str]] = {"new": [], "further": [], "kept": []}
        for name in sorted(header["runs"]):
            found[_compared(archive, staging / name, root / name)].append(name)
        for name in found["new"] + found["further"]:
            _put(staging / name, root / name, staging)
        return Merged(*(tuple(found[what]) for what in ("new", "further", "kept")))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(archive: Path, to: Path) -> dict[str, Any]:
    """Write an archive's files below a folder, each checked. Return its header."""
    try:
        with tarfile.open(archive, "r:*") as tar:
            first = tar.next()
            header = _header(archive, tar, first)
            waiting = dict(header["files"])
            for member in tar:
                if member is not first:
                    _write(archive, tar, member, waiting, to)
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, UnicodeError) as error:
        raise ArchiveError(f"{archive} is damaged, or no archive: {str(error) or type(error).__name__}") from None
    if waiting:
        raise ArchiveError(f"{archive} is damaged: {min(waiting)} is missing")
    return header


def _header(archive: Path, tar: tarfile.TarFile, first: tarfile.TarInfo | None) -> dict[str, Any]:
    """Return what an archive says of itself. Raise if this version cannot read it."""
    from heterophony import __version__

    if first is None or first.name != HEADER or not first.isfile() or first.size > MOST:
        raise ArchiveError(f"{archive} is no archive of runs: it does not begin with {HEADER}")
    try:
        header, whole = opened(_data(tar, first))
    except ValueError as error:
        raise ArchiveError(f"{archive} is damaged: {HEADER}: {error}") from None
    if not whole:
        raise ArchiveError(f"{archive} is damaged: {HEADER} has no checksum")
    if header.get("format") != FORMAT or header.get("heterophony") != __version__:
        raise ArchiveError(
            f"{archive} was packed by heterophony {header.get('heterophony')}, format {header.get('format')}; "
            f"this is {__version__}, format {FORMAT}: use the version that packed it"
        )
    if not _sound(header):
        raise ArchiveError(f"{archive} is damaged: {HEADER} lacks a part")
    for name in header["runs"]:
        _check_folder(name, archive)
    for name in header["files"]:
        _check_file(name, header["runs"], archive)
    return header


def _sound(header: Mapping[str, Any]) -> bool:
    """Return whether a header has the parts that it must have."""
    runs, files = header.get("runs"), header.get("files")
    if not isinstance(runs, dict) or not isinstance(files, dict):
        return False
    return all(isinstance(about, list) and len(about) == 2 for about in files.values())


def _check_folder(name: str, archive: Path) -> None:
    """Raise unless a name is that of a run's folder below the root: three or four plain names."""
    parts = PurePosixPath(name).parts
    if "/".join(parts) != name or not 2 <= len(parts) <= 4 or not all(PART.fullmatch(part) for part in parts):
        raise ArchiveError(f"{archive}: {name!r:.100} is no place of a run: EXPERIMENT/GROUP/ARM/seed-N")


def _check_file(name: str, runs: Mapping[str, Any], archive: Path) -> None:
    """Raise unless a name is that of a file of one of these runs."""
    folder = name.rpartition("/snapshot/")[0] or name.rpartition("/")[0]
    if folder not in runs or not FILES.fullmatch(name[len(folder) + 1 :]):
        raise ArchiveError(f"{archive}: {name!r:.100} is no file of a run")


def _write(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, waiting: dict[str, Any], to: Path) -> None:
    """Write one member below a folder, if the header names it and it is what the header says."""
    if member.name not in waiting:
        raise ArchiveError(f"{archive}: {member.name!r:.100} does not stand in its {HEADER}")
    size, checksum = waiting.pop(member.name)
    if not member.isfile() or member.size != size or digest(data := _data(tar, member)) != checksum:
        raise ArchiveError(f"{archive} is damaged: {member.name} is not what its {HEADER} says")
    path = to / member.name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    Disk().write(path, data)


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"" if file is None else file.read()


def _compared(archive: Path, theirs: Path, ours: Path) -> str:
    """Say whether an archive's run is new here, further than the one that is here, or not.

    Raise if it is another run, or cannot be read.
    """
    told = Run.spec(theirs)
    Run(theirs).check()
    if not (ours / "spec.json").exists():
        if ours.exists() and any(ours.iterdir()):
            raise ArchiveError(f"{archive}: {ours} holds other files than a run: move them away")
        return "new"
    known = Run.spec(ours)
    Run(ours).check()
    try:
        refuse_other(ours, known, told)
    except RunError as error:
        raise ArchiveError(f"{archive}: {error} (--out)") from None
    return "further" if _progress(theirs) > _progress(ours) else "kept"


def _progress(folder: Path) -> tuple[bool, int]:
    """Return how far a run is: whether it has ended, and how much its last snapshot says."""
    run = Run(folder)
    run.check()
    return (folder / "result.json").exists(), sum(run.lengths.values())


def _put(theirs: Path, ours: Path, staging: Path) -> None:
    """Put a run in its place. What was there goes away with the staging folder, or back if that fails."""
    ours.parent.mkdir(parents=True, exist_ok=True)
    if not (ours / "spec.json").exists():
        theirs.replace(ours)  # an empty folder may be there
        return
    before = Path(tempfile.mkdtemp(dir=staging)) / ours.name
    with Run.reading(ours):
        ours.rename(before)
    try:
        theirs.rename(ours)
    except OSError:
        before.rename(ours)
        raise
