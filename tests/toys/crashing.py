"""A disk that keeps a picture of the folder at its writes: what a crash there would leave behind."""

import shutil
from pathlib import Path

from heterophony.base.disk import Disk


class Photographer(Disk):
    """Before each operation, copies the folder as it is; before a write also with half of the bytes written.

    With `every`, only every so many of these moments, from number `first` on.
    """

    def __init__(self, folder: Path, album: Path, every: int = 1, first: int = 0) -> None:
        self.folder, self.album, self.pictures = folder, album, []
        self.every, self.first, self.moments = every, first, 0

    def _picture(self) -> Path | None:
        self.moments += 1
        if (self.moments - 1) % self.every != self.first:
            return None
        picture = self.album / str(len(self.pictures))
        shutil.copytree(self.folder, picture, ignore=shutil.ignore_patterns("lock"))
        self.pictures.append(picture)
        return picture

    def _torn(self, path: Path, data: bytes, mode: str) -> None:
        picture = self._picture()
        if picture:
            with open(picture / path.relative_to(self.folder), mode) as file:
                file.write(data[: len(data) // 2])

    def write(self, path: Path, data: bytes) -> None:
        self._picture()
        self._torn(path, data, "wb")
        super().write(path, data)

    def append(self, path: Path, data: bytes) -> None:
        self._picture()
        self._torn(path, data, "ab")
        super().append(path, data)

    def place(self, file, offset: int, data: bytes) -> None:
        self._picture()
        picture = self._picture()
        if picture:
            with open(picture / Path(file.name).relative_to(self.folder), "r+b") as torn:
                torn.seek(offset)
                torn.write(data[: len(data) // 2])
        super().place(file, offset, data)

    def rename(self, old: Path, new: Path) -> None:
        self._picture()
        super().rename(old, new)

    def truncate(self, path: Path, length: int) -> None:
        self._picture()
        super().truncate(path, length)

    def remove(self, path: Path) -> None:
        self._picture()
        super().remove(path)

    def sync(self, folder: Path) -> None:
        pass  # the death of the process is what is simulated, not that of the disk
