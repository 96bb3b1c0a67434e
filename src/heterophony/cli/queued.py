"""What `reproduce` does with many experiments: the queue, and the archive that carries runs between machines."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterophony.cli import terminal

if TYPE_CHECKING:
    from heterophony.kernel.compute import Compute
    from heterophony.studies.experiments.archive import Merged
    from heterophony.studies.experiments.planning import Version
    from heterophony.studies.experiments.queue import RemainingRuns

ROOT = Path("runs/reproduce")


@dataclass(frozen=True)
class Orders:
    """What the user asks for."""

    name: str | None
    version: Version
    queue: bool
    minutes: float | None
    measure: bool
    pack: Path | None
    merge: Path | None
    jobs: int | None
    as_json: bool


def run(orders: Orders, compute: Compute, data: Path | None, to: Path | None) -> None:
    """Merge, work on what remains, and pack, as far as each is asked for."""
    from heterophony.base.amounts import counted, size
    from heterophony.studies.experiments import archive

    if (orders.minutes is not None or orders.measure) and not orders.queue:
        raise ValueError("--minutes and --measure go with --queue")
    root = to or ROOT
    about: dict[str, Any] = {"folder": str(root)}
    if orders.merge is not None:
        merged = archive.merge(orders.merge, root)
        about |= {"new": merged.new, "further": merged.further, "kept": merged.kept}
        about["tables"] = _tables(orders, merged, root, data)
        _say(orders, f"{orders.merge}: {counted(len(merged.new), 'new run')}, {len(merged.further)} further than here, "
             f"{len(merged.kept)} that were here already")  # fmt: skip
        for page in about["tables"]:
            _say(orders, page)
    if orders.queue:
        about |= _work(orders, compute, data, root)
    if orders.pack is not None:
        header = archive.pack(root, orders.pack)
        ended = sum(header["runs"].values())
        about |= {"archive": str(orders.pack), "runs": len(header["runs"]), "finished": ended}
        text = f"{counted(len(header['runs']), 'run')}, {ended} of them finished, {size(orders.pack.stat().st_size)}"
        _say(orders, f"{orders.pack}: {text}")
    if orders.as_json:
        print(json.dumps(about))


def _say(orders: Orders, text: str) -> None:
    if not orders.as_json:
        print(text)


def _tables(orders: Orders, merged: Merged, root: Path, data: Path | None) -> list[str]:
    """Write the tables of all experiments that an archive has runs of, as far as they go. Return their pages."""
    from heterophony.kernel.compute import Compute
    from heterophony.runs.run import Run
    from heterophony.studies.experiments import Experiment, ExperimentError, planning, shipped
    from heterophony.studies.experiments.reproduction import reproduction

    runs = [*merged.new, *merged.further, *merged.kept]
    pages = []
    for place in dict.fromkeys(run.split("/")[0] for run in runs):
        own = [run for run in runs if run.split("/")[0] == place]
        name = place.removesuffix("-quick")
        given = orders.name is not None and Path(orders.name).stem == name
        if not given and name not in shipped():
            print(f"{place}: no table is made, as there is no experiment {name!r} here: name its file", file=sys.stderr)
            continue
        experiment = Experiment.load(str(orders.name) if given else name)
        seeds = 1 + max(int(run.rpartition("seed-")[2]) for run in own)
        compute = Compute(precision=Run.spec(root / own[0])["precision"])
        quick = place != name
        usual = experiment.quick.seeds if quick else experiment.seeds
        version = planning.Version(quick, seeds if seeds > usual else None)
        try:
            pages.append(str(reproduction(experiment, version, root / place, compute, data).page))
        except ExperimentError as error:  # nothing of it is finished yet
            print(error, file=sys.stderr)
    return pages


def _work(orders: Orders, compute: Compute, data: Path | None, root: Path) -> dict[str, Any]:
    """Say what remains, and how long it will take; then work on it. Return both as plain values."""
    from heterophony.runs.execution import cores
    from heterophony.studies.experiments import queue

    names = () if orders.name is None else (orders.name,)

    def left() -> list[RemainingRuns]:
        return queue.remaining(root, orders.version, compute, data, names)

    tables = left()
    at_once = orders.jobs or (cores() if compute.device == "cpu" else 1)
    _show(orders, tables, at_once)
    failed: list[str] = []
    if orders.minutes is not None:
        logging.getLogger("heterophony").setLevel(logging.WARNING)
        tell = _Teller(orders.as_json)
        if orders.measure:
            failed = queue.measure(tables, orders.minutes, tell)
        else:
            failed = queue.work(tables, orders.minutes, orders.jobs, tell)
        tables = left()
        if not orders.as_json:
            print("What remains now:")
        _show(orders, tables, at_once)
    rows = [dict(zip(queue.HEAD, line, strict=True)) for line in queue.lines(tables, None, at_once)]
    return {"remaining": rows, "failed": failed, "jobs": at_once}


class _Teller:
    """Prints what became of a run, one line each."""

    def __init__(self, quiet: bool) -> None:
        self.file = sys.stderr if quiet else sys.stdout

    def __call__(self, text: str) -> None:
        print(text, file=self.file, flush=True)


def _show(orders: Orders, tables: list[RemainingRuns], at_once: int) -> None:
    """Print what remains as a table."""
    from heterophony.base.amounts import counted
    from heterophony.studies.experiments import queue

    rows = queue.lines(tables, orders.minutes, at_once)
    if orders.as_json or not rows:
        _say(orders, "Nothing remains.")
        return
    terminal.show(queue.HEAD, rows, f"What remains, {counted(at_once, 'run')} at a time", right=True)
