"""Progress of a run, and what Ctrl-C does to it."""

from __future__ import annotations

import importlib
import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from heterophony.base.amounts import size
from heterophony.tables.table import Table

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine
    from heterophony.federation import Federation

log = logging.getLogger(__name__)
err = Console(stderr=True, markup=False, emoji=False)  # names are data

SIDE = {"heterophony": "progress"}  # marks what is no result of a cell
Tick = Callable[["Engine"], None]


@contextmanager
def shown(federation: Federation, rounds: int) -> Iterator[Tick]:
    """Show a bar on a terminal and in a notebook; elsewhere log a line every few seconds.

    Yields what the engine is to call.
    """
    name = (federation.recipe or {}).get("method", type(federation.method).__name__)
    if not err.is_terminal and not err.is_jupyter:
        yield _logged(name, rounds)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        *([] if err.is_jupyter else [TimeRemainingColumn()]),
    )
    bar = Progress(*columns, console=err, transient=True, disable=False)
    task = bar.add_task(name, total=rounds, text="")
    if err.is_jupyter:
        yield _drawn(bar, task, _in_notebook(bar))
        return
    with bar:
        yield _drawn(bar, task, lambda: None)


def _drawn(bar: Progress, task: TaskID, show: Callable[[], None]) -> Tick:
    """Return what brings a bar up to date, once a round."""
    state = {"round": -1}

    def tick(engine: Engine) -> None:
        done = round_of(engine)
        if done != state["round"]:
            state["round"] = done
            bar.update(task, completed=done, text=_facts(engine))
            show()

    return tick


def _in_notebook(bar: Progress) -> Callable[[], None]:
    """Put a bar below the cell, and return what draws it anew in its place. It needs no widgets."""
    display: Callable[..., Any] = importlib.import_module("IPython.display").display
    handle = display(bar, display_id=True, metadata=SIDE)
    return lambda: handle.update(bar, metadata=SIDE)


def _logged(name: str, rounds: int) -> Tick:
    """Return what logs a line every few seconds."""
    state = {"round": -1, "said": time.monotonic()}

    def tick(engine: Engine) -> None:
        now = time.monotonic()
        if now - state["said"] >= 5:
            done = round_of(engine)
            if done != state["round"]:
                state["round"], state["said"] = done, now
                log.info("%s: round %d of %d  %s", name, done, rounds, _facts(engine))

    return tick


def round_of(engine: Engine) -> int:
    """Return the round that all who lead have come to. It is asked for at every wave."""
    return min((b.round for n in engine.leads if (b := engine.boxes.get(n)) is not None), default=0)


def _facts(engine: Engine) -> str:
    """Return how good and how dear the run is so far. It sums tables, so it is asked for once a round."""
    sent = sum(engine.ledger.bytes().values()) if len(engine.ledger.rows) < 5000 else None
    task, product = engine.table.task, engine.method.headline
    ratings = [
        at for at in Table(engine.table.rows[-2000:], task).ratings() if (at.product, at.split) == (product, "test")
    ]
    last = [at.value for at in ratings if at.round == ratings[-1].round and at.value is not None]
    texts = []
    if last:
        texts.append(f"{task.scores[0].label} {task.scores[0].text(sum(last) / len(last))}")
    if sent:
        texts.append(f"sent {size(sent)}")
    return ", ".join(texts)


@contextmanager
def saving_on_interrupt(engine: Engine) -> Iterator[None]:
    """Let the engine save at the first Ctrl-C or SIGTERM, and stop at once at the second."""

    def stop(*_: object) -> None:
        if engine.stop or engine.record is None:
            raise KeyboardInterrupt
        engine.stop = True
        log.warning("\nstopping after the present reactions (Ctrl-C again: at once)")

    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: then signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
