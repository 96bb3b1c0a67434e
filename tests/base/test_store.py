"""Rows in one file: whoever is killed at any write leaves the rows of the last commit."""

import random

import pytest

from heterophony.base.disk import Disk
from heterophony.base.store import UNIT, Damaged, Store


class Killed(BaseException):
    """The process ends here."""


class Fragile(Disk):
    """A disk on which the process is killed at a chosen operation, after half of its bytes."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def _dies(self) -> bool:
        self.left -= 1
        return self.left < 0

    def place(self, file, offset, data):
        dies = self._dies()
        super().place(file, offset, data[: len(data) // 2] if dies else data)
        if dies:
            raise Killed

    def append(self, path, data):
        dies = self._dies()
        with open(path, "ab") as file:
            file.write(data[: len(data) // 2] if dies else data)
        if dies:
            raise Killed

    def truncate(self, path, length):
        if self._dies():
            raise Killed
        super().truncate(path, length)

    def settle(self, file):
        if self._dies():
            raise Killed


def rows(store):
    return {name: (store.get(name), name in store.marked) for name in store}


def worked(folder, disk, draw, kept):
    """Commits of random rows; `kept` has what stands: what a commit said, and the rows that it had."""
    store = Store(folder, disk)
    present = {}
    for generation in range(1, 7):
        for _ in range(draw.randrange(12)):
            name, content = f"n{draw.randrange(8)}", draw.randbytes(draw.choice([0, 100, 700, 5000]))
            mark = draw.random() < 0.5
            store.put(name, content, mark)
            present[name] = content, mark
            assert store.get(name) == content
        about = store.prepare(generation)
        kept[:] = [about, dict(present)]
        store.settle()
        if draw.random() < 0.3:
            store = Store.open(folder, about, disk)
            store.cut()


@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_is_killed_at_any_write_is_the_one_before_or_the_one_after(seed, tmp_path):
    at, ended = 0, False
    while not ended:
        folder, kept = tmp_path / str(at), []
        folder.mkdir()
        try:
            worked(folder, Fragile(at), random.Random(seed), kept)
            ended = True
        except Killed:
            pass
        if kept:
            about, present = kept
            again = Store.open(folder, about)
            again.check()
            assert rows(again) == present
            # And it goes on: what is free does no harm to what is there.
            again.cut()
            for i in range(20):
                again.put(f"new{i}", bytes(300 * i))
            assert {name: row for name, row in rows(again).items() if name in present} == present
        at += 1
    assert at > 30


def test_rows_that_are_written_again_take_no_more_room(tmp_path):
    store = Store(tmp_path)
    sizes = []
    for generation in range(1, 60):
        for i in range(50):
            store.put(f"n{i}", bytes([generation]) * (2900 + generation))
        store.prepare(generation)
        store.settle()
        sizes.append((tmp_path / "nodes.hph").stat().st_size)
    assert sizes[-1] == sizes[1] == 2 * 50 * 12 * UNIT
    assert len(list(tmp_path.glob("index.*"))) > 1  # it was written anew
    again = Store.open(tmp_path, store.prepare(60))
    assert rows(again) == rows(store)
    again.put("n0", bytes(2990))
    assert (tmp_path / "nodes.hph").stat().st_size == sizes[-1]  # a gap was found again


def test_without_a_folder_rows_lie_in_a_file_that_nobody_sees(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store()
    for name in ("a", "b", "a"):
        store.put(name, name.encode() * 5000)
    assert store.get("a") == b"a" * 5000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("harm", ["flipped", "short", "gone", "index", "index gone", "swapped"])
def test_a_damaged_store_says_so(harm, tmp_path):
    store = Store(tmp_path)
    for name in ("a", "b"):
        store.put(name, name.encode() * 100)
    about = store.prepare(1)
    file, index = tmp_path / "nodes.hph", tmp_path / "index.1.hph"
    data = file.read_bytes()
    match harm:
        case "flipped":
            file.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
        case "short":
            file.write_bytes(data[:-1])
        case "gone":
            file.unlink()
        case "index":
            index.write_bytes(index.read_bytes().replace(b"a 0", b"a 1"))
        case "index gone":
            index.unlink()
        case "swapped":
            file.write_bytes(data[UNIT:] + data[:UNIT])
    with pytest.raises((Damaged, FileNotFoundError)):
        Store.open(tmp_path, about).check()
