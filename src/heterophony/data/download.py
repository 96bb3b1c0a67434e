"""Downloads that are either whole and checked, or not there at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any

from heterophony.base.disk import Disk
from heterophony.data.errors import DataError
from heterophony.data.root import Folder, folder
from heterophony.data.sources import KnownSet, lookup
from heterophony.data.sources.files import locate

LIMIT = 1 << 30
_BLOCK = 1 << 20


def download(name: str, root: Folder | None = None) -> list[Path]:
    """Fetch the official files of a known set that are not there yet, and return those that were fetched."""
    return download_entry(lookup(name), folder(root))


def download_entry(entry: KnownSet, root: Path) -> list[Path]:
    """Fetch the official files of an entry that are not under `root` yet."""
    if not entry.fetchable:
        raise DataError(f"{entry.name} has no address to download from: get it by hand ({entry.terms})")
    fetched = []
    for file in entry.files:
        if file.url and file.md5 and locate(entry, root, file) is None:
            fetched.append(fetch(file.url, root / entry.folders[0] / file.name, file.md5))
    return fetched


def fetch(url: str, path: Path, md5: str, *, limit: int = LIMIT, timeout: float = 30.0) -> Path:
    """Copy one file from its address. It appears under `path` only once it is whole, on disk and checked."""
    if not url.startswith(("https://", "http://")):
        raise DataError(f"{url} is not an http address")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            found = _copy(url, out, limit, timeout)
            out.flush()
            os.fsync(out.fileno())
        if found != md5:
            raise DataError(f"{url} has the wrong checksum (md5 {found}, expected {md5}): nothing was kept")
        # mkstemp makes files for the owner only; data are for whoever may read the folder.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    Disk().sync(path.parent)
    return path


def _copy(url: str, out: IO[bytes], limit: int, timeout: float) -> str:
    """Copy what the address answers and return its md5."""
    request = urllib.request.Request(url, headers={"User-Agent": "heterophony"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return _drain(url, answer, out, limit)
    except urllib.error.HTTPError as error:
        raise DataError(f"{url} cannot be downloaded: the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url} cannot be downloaded ({reason}): try again or get the file by hand") from error


def _drain(url: str, answer: Any, out: IO[bytes], limit: int) -> str:
    announced = answer.headers.get("Content-Length")
    digest, size = hashlib.md5(usedforsecurity=False), 0
    while block := answer.read(_BLOCK):
        size += len(block)
        if size > limit:
            raise DataError(f"{url} is larger than {limit} bytes: nothing was kept")
        digest.update(block)
        out.write(block)
    # A connection that breaks off looks like the end of the file when it is read in blocks.
    if announced is not None and announced.isdigit() and size != int(announced):
        raise DataError(f"{url} broke off after {size} of {announced} bytes: nothing was kept, try again")
    return digest.hexdigest()
