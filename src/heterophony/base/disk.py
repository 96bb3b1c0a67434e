"""The few ways in which a run touches the disk. Everything that must survive a crash goes through here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put a file's name into an error that has none: a full disk says so when the bytes are written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


class Disk:
    """Durable writes. Tests replace it by one that fails at a chosen write.

    New files are for their owner alone; where they are not `private`, for whom the user's umask lets in.
    """

    private = True

    def __init__(self, private: bool = True) -> None:
        self.private = private

    def _open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o600 if self.private else 0o666)

    def write(self, path: Path, data: bytes) -> None:
        """A new file, on the disk when this returns."""
        with naming(path), open(path, "wb", opener=self._open) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, path: Path, data: bytes) -> None:
        """A file that is either the old one or the new one, never half of it."""
        temporary = path.with_name(path.name + ".new")
        try:
            self.write(temporary, data)
            self.rename(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error  # nobody has asked for the temporary one

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)
        self.sync(new.parent)

    def append(self, path: Path, data: bytes) -> None:
        with naming(path), open(path, "ab", opener=self._open) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def truncate(self, path: Path, length: int) -> None:
        with open(path, "r+b") as file:
            file.truncate(length)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync(self, folder: Path) -> None:
        """Make renames and new names in a folder durable (POSIX; elsewhere there is nothing to do)."""
        if os.name == "posix":
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
