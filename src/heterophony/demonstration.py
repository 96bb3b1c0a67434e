"""The demo: four different networks on four rotations of real digits, alone and together."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from heterophony import show
from heterophony.federation import Federation
from heterophony.record.result import Result
from heterophony.record.run import Run
from heterophony.settings import Setting, assemble

RUNS = (
    ("solo", "rotated-mnist-mixed", "each network alone"),
    ("fedmd", "rotated-mnist-mixed", "agree on public digits"),
    ("fedavg", "rotated-mnist", "LeNet5 for all"),
)


def play(folder: Path, console: Console, execute: Callable[[Federation, int, Run], Result]) -> None:
    """Run or reuse the demo's runs, and print what came out."""
    began = time.perf_counter()
    console.print(
        "Four participants, each with 650 real digits that are turned by 0, 20, 40 or 60 degrees.", highlight=False
    )
    grid = Table(title="Accuracy on test digits (last round, seed 0)", title_justify="left")
    for column in ("method", "what happens", "all rotations", "own", "others", "sent"):
        grid.add_column(column, justify="left" if column in ("method", "what happens") else "right")
    for method, name, what in RUNS:
        setting = Setting.load(name)
        federation, rounds = assemble(method, setting), setting.plan(method)[0]
        place = folder / method
        spec = federation.identity()
        opened = Run.open(place, spec) if (place / "spec.json").exists() else Run.create(place, spec, rounds)
        with opened as record:
            result = execute(federation, rounds, record)
        summary = show.finish(spec, result, place)
        metrics: dict[str, Any] = summary["metrics"]
        figures = [show.percent(metrics[key]) for key in ("acc", "wdp", "cdp")]
        grid.add_row(method, what, *figures, show.size(summary["bytes"]["total"]))
    console.print(grid)
    print(
        "Alone, each knows its own rotation. With fedmd they learn the others' from logits: no weights, no images move."
    )
    print(f"{time.perf_counter() - began:.0f} s. Look closer: heterophony show {folder / 'fedmd'}")
