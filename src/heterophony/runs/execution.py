"""One run from beginning to end: with progress, trackers, observers, and an interrupt that saves it.

`Federation.run`, the command line and campaigns all come here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from heterophony import engines
from heterophony.engines.engine import Engine
from heterophony.federation import Federation
from heterophony.runs import observers, progress, trackers
from heterophony.runs.run import Run
from heterophony.runs.summary import Summary, finish
from heterophony.tables.result import Result


class Ended(NamedTuple):
    """A run that has come to its end, and what its folder says of it."""

    result: Result
    summary: Summary


def execute_in(
    folder: Path,
    federation: Federation,
    rounds: int | None = None,
    *,
    usual: int = 0,
    new: bool | None = None,
    track: str | None = None,
    beside: Mapping[str, bytes] | None = None,
    **how: Any,
) -> Ended:
    """Run a federation in a folder, or go on with the run that is there, and write down what came of it.

    Arguments:
        rounds: how many; None: as far as the run was to go, and at least `usual`.
        new: whether the folder must be new (True), must hold a run (False), or may be either (None).
        track: the names of trackers, with commas between; None: what the run began with.
        beside: files that the folder gets before the run begins, by name.
        how: what `execute` takes.
    """
    there = (folder / "spec.json").exists() if new is None else not new
    track = track or trackers.remembered(Run.spec(folder) if there else {})
    told, spec = trackers.chosen(track), federation.identity()  # before there is a folder
    with Run.open(folder, spec) if there else Run.create(folder, {**spec, "track": track}, rounds or usual) as record:
        for name, data in (beside or {}).items():
            record.disk.replace(folder / name, data)
        result = execute(federation, rounds or max(usual, record.goal), record, told=told, **how)
        return Ended(result, finish(spec, result, folder))


def execute(
    federation: Federation,
    rounds: int,
    record: Run | None = None,
    *,
    engine: Callable[..., Engine] = engines.local,
    told: Sequence[str] = (),
    loud: bool = True,
    watch: Callable[[Engine], None] | None = None,
    **options: Any,
) -> Result:
    """Run a federation, or what is left of it in its folder.

    `told` are the names of trackers. If `loud`, progress is shown. `watch` is called with the engine after each wave
    of events, and may stop it. `options` are the engine's.
    """
    folder = None if record is None else record.folder
    if folder is not None:
        observers.begin(federation, folder)
    with (
        progress.shown(federation, rounds) if loud else nullcontext() as shown,
        trackers.following(told, folder, federation.identity(), shown) as tick,
    ):
        made = engine(federation, record=record, progress=tick if watch is None else _both(tick, watch), **options)
        with progress.saving_on_interrupt(made):
            result = made.run(rounds)
    if folder is not None:
        observers.end(federation, result, folder)
    return result


def _both(first: Callable[[Engine], None], second: Callable[[Engine], None]) -> Callable[[Engine], None]:
    """Return what calls one after the other."""

    def tick(engine: Engine) -> None:
        first(engine)
        second(engine)

    return tick


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
