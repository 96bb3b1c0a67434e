"""A run folder: what is being run, its tables, and the snapshot from which it can go on.

    spec.json                what must be equal to resume
    metrics.jsonl            the evaluation table, one row a line
    ledger.jsonl             the ledger, one row a line
    snapshot/manifest.json   names the files of the last snapshot and how long the two tables are
    snapshot/*.hph           the queue; a row a node, in one file; an index of the rows
    result.json              what a finished run has come to

A snapshot writes only nodes that were touched since the last one, and none over a row of the last one. The queue gets a
new name. The manifest is replaced last. So a crash at any moment leaves the old snapshot or the new one. What a table,
or the index, holds beyond the manifest's length is nobody's: readers do not see it, and a resumed run cuts it off.

The manifest has a checksum of the queue, the index, spec.json, and of the tables as long as they are. A table's is that
of all rows, and goes on with every row, so that nothing is read again. The JSON files, and the rows of nodes, carry
checksums of themselves.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from heterophony.base.disk import Disk
from heterophony.base.seal import digest, opened, sealed
from heterophony.base.store import Damaged, Store
from heterophony.tables.rows import RowLog, lines

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine

FORMAT = 4
OLDER = (1, 2, 3)  # can be read and not resumed: nodes had files of their own; before 3, options had other forms
UNSEALED = 1  # the format without checksums of tables and of JSON files
TABLES = ("metrics", "ledger")
DECIDES = ("method", "setting", "seed", "changes", "compute")  # of a recipe; shapes, names and so on follow from these
OURS = {"spec.json", "spec.json.new", "lock", "snapshot", "metrics.jsonl", "ledger.jsonl", "result.json"}


class RunError(ValueError):
    """A run folder that cannot be used; one line that says why and what to do."""


class Run:
    """A locked run folder. `cadence` is the least number of seconds between snapshots."""

    def __init__(self, folder: Path, *, cadence: float = 30.0, disk: Disk | None = None) -> None:
        self.folder, self.cadence, self.disk = folder, cadence, disk or Disk()
        self.snapshot = folder / "snapshot"
        self.lock = FileLock(str(folder / "lock"), timeout=0, mode=0o600)
        self.generation = 0
        self.nodes = Store(self.snapshot, self.disk)
        self.about_nodes: dict[str, Any] | None = None  # what the manifest says of them
        self.files: dict[str, str] = {}
        self.sums: dict[str, str] = {}
        self.written = dict.fromkeys(TABLES, 0)  # rows
        self.lengths = dict.fromkeys(TABLES, 0)  # bytes
        self.hashes = {table: hashlib.sha256() for table in TABLES}  # of so many bytes
        self.begun = ""  # the checksum of spec.json
        self.saved = self.opened = time.monotonic()
        self.earlier = 0.0  # seconds of the processes before this one, as far as they were saved

    @property
    def seconds(self) -> float:
        """Return how long the run has taken, over all processes that worked on it."""
        return self.earlier + time.monotonic() - self.opened

    @classmethod
    def create(cls, folder: Path, spec: dict[str, Any], rounds: int, **options: Any) -> Run:
        """Make a new run folder and lock it. Raise if there is a run already."""
        run = cls(folder, **options)
        if (folder / "spec.json").exists():
            raise RunError(f"{folder} holds a run already: resume it, or choose another folder")
        if others := [path.name for path in folder.glob("*") if path.name not in OURS]:
            raise RunError(f"{folder} holds other files ({min(others)}): choose an empty or a new folder")
        for place in (folder, run.snapshot):  # for its owner alone, as its files are
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        run._acquire()
        data = sealed({"format": FORMAT, **spec, "rounds": rounds}, indent=1)
        run.disk.replace(folder / "spec.json", data)
        run.begun = digest(data)
        return run

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any] | None = None, **options: Any) -> Run:
        """Lock a run folder to go on with its run. Raise unless `spec` says what the folder says."""
        run = cls(folder, **options)
        found = cls.resumable(folder)
        run.begun = cls._spec(folder)[2]
        if spec is not None:
            refuse_other(folder, found, json.loads(json.dumps(spec)))
        run._acquire()
        return run

    @classmethod
    def reading(cls, folder: Path) -> Run:
        """Lock a run folder to read its snapshot, which an earlier version may have written."""
        run = cls(folder)
        cls._spec(folder)
        run._acquire()
        return run

    @staticmethod
    def spec(folder: Path) -> dict[str, Any]:
        """Return what a run folder says it is."""
        return Run._spec(folder)[0]

    @staticmethod
    def resumable(folder: Path) -> dict[str, Any]:
        """Return the same. Raise if an earlier version wrote the folder: its run can be looked at, and not go on."""
        found, form, _ = Run._spec(folder)
        if form != FORMAT:
            raise RunError(
                f"{folder} was made by an earlier version of heterophony: this one can show it, but not go on with it; "
                "begin again in another folder"
            )
        return found

    @staticmethod
    def _spec(folder: Path) -> tuple[dict[str, Any], int, str]:
        """Return what a run folder says it is, its format, and the checksum of `spec.json`."""
        path = folder / "spec.json"
        try:
            data = path.read_bytes()
            found, whole = opened(data)
        except FileNotFoundError:
            raise RunError(f"{folder} holds no run: there is no spec.json") from None
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from None
        if (form := found.pop("format", None)) not in (FORMAT, *OLDER):
            raise RunError(f"{folder} was written in another format than {FORMAT}; use the version that wrote it")
        if form != UNSEALED and not whole:
            raise RunError(f"{path} is damaged: its checksum is missing")
        return found, form, digest(data)

    @staticmethod
    def checked(folder: Path) -> bool:
        """Return whether a folder has checksums of its figures."""
        return Run._spec(folder)[1] != UNSEALED

    @staticmethod
    def part(folder: Path, name: str) -> dict[str, Any] | None:
        """Return a JSON file of a run folder, or None where there is none. Raise if its checksum is wrong."""
        path = folder / name
        try:
            found, whole = opened(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from None
        if not whole and Run.checked(folder):
            raise RunError(f"{path} is damaged: its checksum is missing")
        return found

    def _acquire(self) -> None:
        try:
            self.lock.acquire()
        except Timeout:
            raise RunError(f"{self.folder} is in use by another process") from None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    @property
    def exists(self) -> bool:
        """Return whether there is a snapshot to go on from. A crash may have come before the first."""
        return (self.snapshot / "manifest.json").exists()

    def begin(self) -> None:
        """Clear what was left by a run that was killed before its first snapshot."""
        self._refuse_lost()
        for table in TABLES:
            path = self.folder / f"{table}.jsonl"
            if path.exists():
                self.disk.truncate(path, 0)
        self._sweep()

    def _refuse_lost(self) -> None:
        """Raise if the snapshot of a finished run is gone."""
        if (self.folder / "result.json").exists():
            raise RunError(f"{self.snapshot / 'manifest.json'} is missing, but the run was finished: it is damaged")

    def refuse_fewer(self, rounds: int, known: int) -> None:
        """Raise if a run is to end earlier than it was begun for: its snapshot may be beyond that."""
        if rounds < known:
            raise RunError(
                f"{self.folder} is a run of {known} rounds; it can be made longer, but not end after {rounds}"
            )

    def due(self) -> bool:
        """Return whether it is time for another snapshot."""
        return time.monotonic() - self.saved >= self.cadence

    def save(self, engine: Engine) -> None:
        """Write a snapshot of an engine at rest."""
        self.generation += 1
        for node in sorted(engine.dirty & engine.boxes.keys()):
            engine.write_row(node)
        self.about_nodes = self.nodes.prepare(self.generation)
        self._file("queue", engine.encode_queue())
        self.disk.sync(self.snapshot)
        self.disk.sync(self.folder)
        self._append("metrics", engine.table.rows)
        self._append("ledger", engine.ledger.rows)
        manifest = {"format": FORMAT, "generation": self.generation, "files": self.files, "sums": self.sums}
        manifest["nodes"] = self.about_nodes
        manifest |= {"lengths": self.lengths, "seconds": round(self.seconds, 3), "rounds": engine.rounds}
        manifest |= {"tables": {table: made.hexdigest() for table, made in self.hashes.items()}, "spec": self.begun}
        self.disk.replace(self.snapshot / "manifest.json", sealed(manifest))
        self.nodes.settle()
        self._sweep()
        engine.dirty.clear()
        self.saved = time.monotonic()

    def _file(self, name: str, data: bytes) -> None:
        """Write a file of the snapshot under a new name."""
        path = self.snapshot / f"{name}.{self.generation}.hph"
        self.disk.write(path, data)
        self.files[name], self.sums[name] = path.name, digest(data)

    def _append(self, table: str, rows: RowLog) -> None:
        """Write the rows that a table has had since the last snapshot."""
        data = lines(rows[self.written[table] :])
        self.disk.append(self.folder / f"{table}.jsonl", data)
        self.written[table] = len(rows)
        self.lengths[table] += len(data)
        self.hashes[table].update(data)
        rows.leave(self.folder / f"{table}.jsonl", self.lengths[table])

    def _sweep(self) -> None:
        """Remove what no manifest names: the last snapshot's replaced files, or a crashed one's."""
        named = set(self.named)
        for path in sorted(self.snapshot.glob("*.hph")):
            if path.name not in named:
                self.disk.remove(path)

    def load(self, engine: Engine) -> None:
        """Put an engine where the last snapshot stands."""
        manifest = self._manifest()
        self.earlier = float(manifest.get("seconds", 0.0))
        rows: dict[str, RowLog] = {}
        for table in TABLES:
            data = self._bytes(table, manifest.get("tables", {}))
            self.hashes[table] = hashlib.sha256(data)
            rows[table] = self._parsed(table, data)
        engine.table.rows, engine.ledger.rows = rows["metrics"], rows["ledger"]
        self.written = {table: len(found) for table, found in rows.items()}
        queue = self._read("queue")
        self._open_nodes()
        with self._damage():
            self.nodes.check()
        engine.restore_queue(queue)
        engine.idle.store = self.nodes
        engine.restore_nodes()
        engine.dirty.clear()
        for table, length in self.lengths.items():  # last, so that a damaged run stays as it is
            path = self.folder / f"{table}.jsonl"
            if path.exists() and path.stat().st_size > length:
                self.disk.truncate(path, length)
        self.nodes.cut()
        self._sweep()

    @property
    def named(self) -> list[str]:
        """Return the names of the snapshot's files beside its manifest, as the last one that was read or written."""
        about = self.about_nodes
        return [*self.files.values(), *([] if about is None else [about["rows"], about["index"]])]

    def _open_nodes(self) -> None:
        """Find the rows that the manifest names."""
        about = self.about_nodes
        if about is not None and about["sum"] != self.nodes.sum.hexdigest():
            with self._damage():
                self.nodes = Store.open(self.snapshot, about, self.disk)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Say of rows that cannot be read which file is damaged."""
        try:
            yield
        except FileNotFoundError as error:
            raise RunError(f"{error.filename} is missing: the run cannot be resumed") from None
        except Damaged as error:
            raise RunError(f"{self.snapshot / self.nodes.rows} is damaged ({error}): it cannot be resumed") from None

    def _manifest(self) -> dict[str, Any]:
        """Read what the last snapshot consists of. Raise if it is damaged or of another run."""
        path = self.snapshot / "manifest.json"
        _, form, spec = self._spec(self.folder)
        try:
            manifest, whole = opened(path.read_bytes())
            if not whole and form != UNSEALED:
                raise ValueError("its checksum is missing")
            self.generation = int(manifest["generation"])
            self.files, self.sums, self.lengths = (dict(manifest[k]) for k in ("files", "sums", "lengths"))
            if self.files.keys() != self.sums.keys() or "queue" not in self.files or len(self.lengths) != 2:
                raise KeyError
            self.about_nodes = dict(manifest["nodes"]) if form == FORMAT else None
        except FileNotFoundError:
            raise RunError(f"{self.folder} has no snapshot yet") from None
        except (ValueError, KeyError, TypeError) as error:
            why = error if type(error) is ValueError else "it lacks a part"
            raise RunError(f"{path} is damaged: {why}") from None
        if manifest.get("spec", spec) != spec:
            raise RunError(f"{self.folder / 'spec.json'} is damaged: it is not what the run was begun with")
        return manifest

    @property
    def goal(self) -> int:
        """Return how many rounds the run was to reach: as its last snapshot says, or as it was started with."""
        if not self.exists:
            return int(self.spec(self.folder)["rounds"])
        rounds = self._manifest().get("rounds")  # manifests of format 1 may lack it
        return int(_unpacked(self._read("queue"))["rounds"] if rounds is None else rounds)

    def node_state(self, node: str) -> dict[str, Any]:
        """Return a node's row in the last snapshot."""
        self._manifest()
        self._open_nodes()
        if f"node-{node}" in self.files:  # formats before 4
            return dict(_unpacked(self._read(f"node-{node}")))
        if node not in self.nodes:
            raise RunError(f"{self.folder}: node {node} has taken no part so far")
        with self._damage():
            return dict(_unpacked(self.nodes.get(node)))

    def _read(self, name: str) -> bytes:
        """Return a file of the last snapshot. Raise if it is damaged."""
        path = self.snapshot / self.files[name]
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise RunError(f"{path} is missing: the run cannot be resumed") from None
        if digest(data) != self.sums[name]:
            raise RunError(f"{path} is damaged (its checksum differs): the run cannot be resumed")
        return data

    def check(self) -> None:
        """Raise unless the tables are what the last snapshot says. After a crash they may be longer."""
        sums = self.sums_of_tables()
        for table in TABLES:
            self._bytes(table, sums)

    def rows(self, table: str) -> RowLog:
        """Return a table as the last snapshot has it. The run may be in progress."""
        sums = self.sums_of_tables()
        return self._parsed(table, self._bytes(table, sums))

    def sums_of_tables(self) -> dict[str, str]:
        """Return the checksums of both tables, as the last snapshot has them; none of format 1."""
        if self.exists:
            return dict(self._manifest().get("tables", {}))
        self._refuse_lost()
        self.lengths = dict.fromkeys(TABLES, 0)
        return {}

    def _bytes(self, table: str, sums: Mapping[str, str]) -> bytes:
        """Return as much of a table's file as belongs to the last snapshot."""
        path, length = self.folder / f"{table}.jsonl", self.lengths[table]
        data = b""
        if length and path.exists():
            with open(path, "rb") as file:
                data = file.read(length)
        if len(data) < length:
            raise RunError(f"{path} is cut short: {len(data)} of {length} bytes")
        if table in sums and digest(data) != sums[table]:
            raise RunError(f"{path} is damaged (its checksum differs)")
        return data

    def _parsed(self, table: str, data: bytes) -> RowLog:
        """Return the rows of a table."""
        path, rows = self.folder / f"{table}.jsonl", RowLog()
        at = 0
        try:
            for line in data.splitlines(keepends=True):
                rows.append(dict(json.loads(line)))
                at += len(line)
                rows.leave(path, at)
        except (ValueError, TypeError):
            raise RunError(f"{path} is damaged: a line of it is no JSON object") from None
        return rows


def refuse_other(folder: Path, found: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise if a folder is of another run than what is asked for, and name the first difference."""
    known, given = _deciding(found), _deciding(asked)
    was, now = (_method(about) for about in (known, given))
    if was and now and was != now:  # the name that users give comes before all that follows from it
        raise RunError(f"{folder} was run with {was}, not {now}: choose another folder")
    for key, value in given.items():
        if known.get(key) != value:
            where, old, new = first_difference(key, known.get(key), value)
            raise RunError(f"{folder} was run with {where} = {old!r:.80}, not {new!r:.80}: choose another folder")


def _method(spec: dict[str, Any]) -> str | None:
    """Return the name by which the user called the method; None where it was built in Python."""
    name: str | None = (spec.get("recipe") or {}).get("method")
    return name


def _deciding(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with that part of its recipe that decides: what follows from it may be noted otherwise."""
    recipe = spec.get("recipe")
    return spec if not recipe else {**spec, "recipe": {key: recipe.get(key) for key in DECIDES}}


def first_difference(where: str, a: Any, b: Any) -> tuple[str, Any, Any]:
    """Return the first place where two specs differ, and both values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *b]:
            if a.get(key) != b.get(key):
                return first_difference(f"{where}.{key}", a.get(key), b.get(key))
    return where, a, b


def _unpacked(data: bytes) -> Any:
    """Return what a file of a snapshot holds. Tables and JSON are read without torch, which takes long to import."""
    from heterophony.base import codec

    return codec.unpack(data)
