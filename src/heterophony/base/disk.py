"""The few ways in which a run writes to the disk. Everything that must survive a crash goes through here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path


@contextmanager
def naming(path: Path | str | int) -> Iterator[None]:
    """Put a file's name into an error that has none. A full disk raises such an error when bytes are written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


class Disk:
    """Durable writes. Tests replace it by one that fails at a chosen write.

    New files are for their owner alone. With `private=False` the user's umask decides who may read them.
    """

    private = True

    def __init__(self, private: bool = True) -> None:
        self.private = private

    def _open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o600 if self.private else 0o666)

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file. It is on the disk when this returns."""
        with naming(path), open(path, "wb", opener=self._open) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file anew. After a crash it is either the old one or the new one, never half of it."""
        temporary = path.with_name(path.name + ".new")
        try:
            self.write(temporary, data)
            self.rename(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno is None:
                raise
            # The caller knows nothing of the temporary file: name the one that it asked for.
            raise OSError(error.errno, error.strerror, str(path)) from error

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, which is durable when this returns."""
        os.replace(old, new)
        self.sync(new.parent)

    def append(self, path: Path, data: bytes) -> None:
        """Write at the end of a file, or a new file. It is on the disk when this returns."""
        with naming(path), open(path, "ab", opener=self._open) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def opened(self, path: Path) -> FileIO:
        """Open a file to read it and to `place` bytes in it; a new one if there is none."""
        return FileIO(str(path), "r+", opener=lambda name, flags: self._open(name, flags | os.O_CREAT))

    def place(self, file: FileIO, offset: int, data: bytes) -> None:
        """Write in the midst of an open file. It is on the disk after `settle`."""
        with naming(file.name):
            file.seek(offset)
            while data:
                data = data[file.write(data) :]

    def settle(self, file: FileIO) -> None:
        """Wait until all that was placed in a file is on the disk."""
        with naming(file.name):
            os.fsync(file.fileno())

    def truncate(self, path: Path, length: int) -> None:
        """Cut a file off behind so many bytes."""
        with open(path, "r+b") as file:
            file.truncate(length)
            file.flush()
            os.fsync(file.fileno())

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""
        path.unlink(missing_ok=True)

    def sync(self, folder: Path) -> None:
        """Make renames and new names in a folder durable. Only POSIX asks for this."""
        if os.name == "posix":
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
