"""One run from beginning to end: with progress, trackers, observers, and an interrupt that saves it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from heterophony import engines
from heterophony.engines.engine import Engine
from heterophony.federation import Federation
from heterophony.runs import observers, progress, trackers
from heterophony.runs.run import Run
from heterophony.tables.result import Result


def execute(
    federation: Federation,
    rounds: int,
    record: Run | None = None,
    *,
    engine: Callable[..., Engine] = engines.local,
    told: Sequence[str] | None = None,
    loud: bool = True,
    watch: Callable[[Engine], None] | None = None,
) -> Result:
    """Run a federation, or what is left of it in its folder.

    `told` are the names of trackers, the usual ones if not given. If `loud`, progress is shown. `watch` is called with
    the engine after each wave of events, and may stop it.
    """
    folder = None if record is None else record.folder
    if folder is not None:
        observers.begin(federation, folder)
    names = trackers.chosen("auto") if told is None else list(told)
    with (
        progress.shown(federation, rounds) if loud else nullcontext() as shown,
        trackers.following(names, folder, federation.identity(), shown) as tick,
    ):
        made = engine(federation, record=record, progress=tick if watch is None else _both(tick, watch))
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
