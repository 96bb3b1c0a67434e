"""What a run tells to trackers while it goes: one small hook, and who may hang on it.

A tracker is told numbers by name and round. Rounds are counted from 1, as everywhere. The numbers are the headline's
figures (all, own and others' domains, the worst participant), and the means over nodes of all that was evaluated, of
loss terms (by the data they are on) and of notes. Bytes and virtual time are told too. TensorBoard's files go to the
run folder if it is installed; MLflow and Weights & Biases (offline) if asked for. A resumed run tells its rounds again,
with the same numbers.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from heterophony.base.disk import naming
from heterophony.runs.progress import round_of
from heterophony.tables.ledger import Ledger
from heterophony.tables.metrics import measure
from heterophony.tables.table import Table

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine

BINARY = getattr(os, "O_BINARY", 0)  # where there is a difference
WORDS = {"acc": "all domains", "wdp": "own domain", "cdp": "other domains", "worst": "worst participant"}
Tick = Callable[["Engine"], None]


class TrackerError(ValueError):
    """A tracker that cannot be used; one line that says why."""


class Tracker(Protocol):
    """Who is told."""

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Take the numbers of a round."""

    def close(self) -> None:
        """Write what is left, and end."""


class TensorBoard:
    """An event file in FOLDER/tensorboard, written as it comes: no thread, so that workers can be forked."""

    def __init__(self, folder: Path, title: str, options: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        place = folder / "tensorboard"
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = time.time()
        name = f"events.out.tfevents.{now:.6f}.{socket.gethostname()}.{os.getpid()}"  # later ones sort behind
        self.path = place / name
        self.file = open(os.open(self.path, os.O_WRONLY | os.O_CREAT | BINARY, 0o600), "wb")  # noqa: SIM115 (closed by `close`)
        self.write, self.event, self.summary = RecordWriter(self.file), Event, Summary
        self.write.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        values = [self.summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        event = self.event(wall_time=time.time(), step=round, summary=self.summary(value=values))
        with naming(self.path):
            self.write.write(event.SerializeToString())
            self.file.flush()

    def close(self) -> None:
        with naming(self.path):
            self.file.close()


class MLflow:
    """A run in the file store FOLDER/mlflow, unless MLFLOW_TRACKING_URI names another place."""

    def __init__(self, folder: Path, title: str, options: Mapping[str, Any]) -> None:
        os.environ.setdefault(
            "MLFLOW_ALLOW_FILE_STORE", "true"
        )  # a folder needs no database, which it would like better
        from mlflow.tracking import MlflowClient

        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            (folder / "mlflow").mkdir(exist_ok=True, mode=0o700)
            place = (folder / "mlflow").absolute().as_uri()
        self.client = MlflowClient(place)
        known = self.client.get_experiment_by_name("heterophony")
        experiment = known.experiment_id if known is not None else self.client.create_experiment("heterophony")
        self.run = self.client.create_run(experiment, run_name=title).info.run_id
        for key, value in options.items():
            self.client.log_param(self.run, key, str(value)[:500])

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        for name, value in numbers.items():
            plain = "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)
            self.client.log_metric(self.run, plain, value, step=round)

    def close(self) -> None:
        self.client.set_terminated(self.run)


class WandB:
    """A run in FOLDER/wandb; offline, unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, title: str, options: Mapping[str, Any]) -> None:
        import wandb

        (folder / "wandb").mkdir(exist_ok=True, mode=0o700)
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(project="heterophony", name=title, dir=str(folder), mode=mode, config=dict(options))

    def log(self, numbers: Mapping[str, float], round: int) -> None:
        self.run.log(dict(numbers), step=round)

    def close(self) -> None:
        self.run.finish()


KINDS: dict[str, tuple[type[Any], str]] = {
    "tensorboard": (TensorBoard, "tensorboard"),
    "mlflow": (MLflow, "mlflow"),
    "wandb": (WandB, "wandb"),
}


def chosen(text: str) -> list[str]:
    """Return the names in `--track a,b`. "auto" is TensorBoard if it is installed, "none" nobody."""
    if text == "auto":
        return ["tensorboard"] if find_spec("tensorboard") else []
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return []
    for name in names:
        if name not in KINDS:
            raise TrackerError(f"there is no tracker {name!r}; it is {', '.join(KINDS)} or none")
        if find_spec(KINDS[name][1]) is None:
            raise TrackerError(f"{name} is not installed: pip install 'heterophony[{name}]'")
    return names


def remembered(spec: Mapping[str, Any]) -> str:
    """Return what `--track` said when a run began. `spec` is that of its folder."""
    return str(spec.get("track", "auto"))


@contextmanager
def following(names: Sequence[str], folder: Path | None, spec: Mapping[str, Any], tick: Tick | None) -> Iterator[Tick]:
    """Yield a function for the engine's `progress`. It calls `tick` and tells the trackers of every finished round."""
    trackers: list[Tracker] = []
    told = Teller(trackers)
    options = {"method": spec["method"], "seed": spec["seed"], **spec["settings"]}
    recipe = spec.get("recipe") or {}
    title = f"{recipe.get('method', spec['method'])}, seed {spec['seed']}"

    def follow(engine: Engine) -> None:
        if tick is not None:
            tick(engine)
        if folder is not None and names:
            if not trackers:  # made with the first event: a run that is over already says nothing
                trackers.extend(KINDS[name][0](folder, title, options) for name in names)
            told.tell(engine)

    try:
        yield follow
        told.finish()
    finally:
        for tracker in trackers:
            tracker.close()


class Teller:
    """Sums up the table's new rows by round, and tells a round when all who lead have left it behind."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers
        self.engine: Engine | None = None
        self.seen = self.counted = 0
        self.sent = 0
        self.waiting: dict[int, list[dict[str, Any]]] = {}

    def tell(self, engine: Engine) -> None:
        """Tell all rounds that are over by now."""
        self.engine = engine
        lead = round_of(engine)
        self._read()
        for round in sorted(r for r in self.waiting if r < lead):
            self._say(round)

    def finish(self) -> None:
        """Tell the rounds that are left when the run has ended."""
        if self.engine is not None:
            self._read()
            for round in sorted(self.waiting):
                self._say(round)

    def _read(self) -> None:
        """Sort the table's new rows by round."""
        assert self.engine is not None
        rows, self.seen = self.engine.table.rows[self.seen :], len(self.engine.table.rows)
        for row in rows:
            self.waiting.setdefault(row["round"], []).append(row)

    def _say(self, round: int) -> None:
        """Tell a round: means of what was evaluated and noted, the headline's figures, bytes and time."""
        assert self.engine is not None
        rows, federation = self.waiting.pop(round), self.engine.federation
        named: dict[str, list[float]] = {}
        for row in rows:
            if row["sum"] is not None and row["n"]:
                named.setdefault(_name(row), []).append(row["sum"] / row["n"])
        numbers = {name: math.fsum(values) / len(values) for name, values in named.items()}
        numbers |= _headline(Table(rows, federation.task), federation.homes, federation.method.headline)
        entries, self.counted = self.engine.ledger.rows[self.counted :], len(self.engine.ledger.rows)
        self.sent += sum(Ledger(entries).bytes().values())
        numbers |= {"run/bytes sent": float(self.sent), "run/virtual seconds": self.engine.clock}
        for tracker in self.trackers:
            tracker.log(numbers, round + 1)


def _headline(rows: Table, homes: Mapping[str, str], product: str) -> dict[str, float]:
    """Return the papers' figures of a round in which everyone's model, or the one that all use, was evaluated."""
    nodes = {row["node"] for row in rows if row["product"] == product}
    if homes and len(nodes) > 1 and nodes.isdisjoint(homes):  # edge servers, say: nobody's own, and not one for all
        return {}
    found = measure(rows, homes, product).as_dict()
    return {f"{product}/{word}": found[key] for key, word in WORDS.items() if found[key] is not None}


def _name(row: Mapping[str, Any]) -> str:
    """Return the name under which a row is told."""
    if row["split"] == "train":  # a loss term, on the data that it was trained on
        return f"{row['product']}/{row['quantity']} ({row['set']})"
    split = "" if row["split"] in ("test", "") else f" ({row['split']})"  # "validation" and the like
    return f"{row['product']}/{row['quantity']}{split}"
