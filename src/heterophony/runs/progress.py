"""Progress of a run, and what Ctrl-C does to it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from heterophony.base.amounts import size

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine
    from heterophony.federation import Federation

err = Console(stderr=True, markup=False, emoji=False)  # names are data


@contextmanager
def shown(federation: Federation, rounds: int) -> Iterator[Callable[[Engine], None]]:
    """A bar on a terminal; elsewhere a line every few seconds."""
    name = (federation.recipe or {}).get("method", type(federation.method).__name__)
    state = {"round": -1, "said": time.monotonic()}

    if err.is_terminal:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task(name, total=rounds, text="")

            def tick(engine: Engine) -> None:
                done = _round(engine)
                if done != state["round"]:
                    state["round"] = done
                    bar.update(task, completed=done, text=_facts(engine))

            yield tick
        return

    def log(engine: Engine) -> None:
        now = time.monotonic()
        if now - state["said"] >= 5:
            done = _round(engine)
            if done != state["round"]:
                state["round"], state["said"] = done, now
                print(f"{name}: round {done} of {rounds}  {_facts(engine)}", file=sys.stderr, flush=True)

    yield log


def _round(engine: Engine) -> int:
    """The round that all who lead have come to; asked at every wave."""
    return min((b.round for n in engine.leads if (b := engine.boxes.get(n)) is not None), default=0)


def _facts(engine: Engine) -> str:
    """How good and how dear it is so far; sums tables, so it is asked once a round."""
    sent = sum(engine.ledger.bytes().values()) if len(engine.ledger.rows) < 5000 else None
    wanted = (engine.method.headline, "accuracy", "test")
    scores = [r for r in engine.table.rows[-2000:] if (r["product"], r["quantity"], r["split"]) == wanted]
    scores = [r for r in scores if r["round"] == scores[-1]["round"] and r["sum"] is not None]
    n = sum(r["n"] for r in scores)
    texts = [f"accuracy {100 * sum(r['sum'] for r in scores) / n:.1f} %"] if n else []
    return ", ".join([*texts, *([f"sent {size(sent)}"] if sent else [])])


@contextmanager
def saving_on_interrupt(engine: Engine) -> Iterator[None]:
    """The first Ctrl-C, or a service manager's SIGTERM, lets the engine save; the second stops at once."""

    def stop(*_: object) -> None:
        if engine.stop or engine.record is None:
            raise KeyboardInterrupt
        engine.stop = True
        print("\nstopping after the present reactions (Ctrl-C again: at once)", file=sys.stderr, flush=True)

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
