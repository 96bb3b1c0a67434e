"""The demo: four different networks on four rotations of real digits, alone and together, and a tree beside them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from heterophony.base.amounts import percent, size
from heterophony.runs.summary import Summary
from heterophony.settings import Setting
from heterophony.studies import campaign
from heterophony.studies.campaign import PlannedRun

MIXED, TREE = "rotated-mnist-mixed", "rotated-mnist"
# Method, setting, what happens, rounds: fewer than the settings', so that the whole is over in about two minutes.
RUNS: tuple[tuple[str, str, str, int | None], ...] = (
    ("solo", MIXED, "each network alone", 6),
    ("fedmd", MIXED, "agree on public digits", 6),
    ("fml", MIXED, "a common network travels", 6),
    ("fccl", MIXED, "correlate public logits", 6),
    ("fedh2l", MIXED, "peers teach peers", 80),
    ("bhfl", TREE, "a tree, LeNet5 for all", 8),
)


# What half a minute allows: enough to see the table and the page, not to compare methods.
QUICK: tuple[tuple[str, str, str, int | None], ...] = (
    ("solo", MIXED, "each network alone", 3),
    ("fedmd", MIXED, "agree on public digits", 3),
    ("fedh2l", MIXED, "peers teach peers", 20),
)


def planned_runs(folder: Path, *, quick: bool = False) -> list[PlannedRun]:
    """Return the runs, one seed each; `quick` returns fewer and shorter ones."""
    found = []
    for method, name, _, rounds in QUICK if quick else RUNS:
        setting = Setting.load(name)
        place = folder / method / "seed-0"
        found.append(PlannedRun(label=method, method=method, setting=setting, folder=place, rounds=rounds))
    return found


def play(folder: Path, console: Console, *, quick: bool = False) -> None:
    """Run or reuse the demo's runs, print what came out, and make the report."""
    from heterophony import report

    began = time.perf_counter()
    if lacking := report.lacking():  # said before the runs, which take minutes
        said = f"The demo will run and print its table, but make no page of figures: {lacking}"
        print(said, file=sys.stderr, flush=True)
    console.print(
        "Four participants, each with 650 real digits that are turned by 0, 20, 40 or 60 degrees; LeNet5, MLP, CNN and "
        "wide ResNet.",
        highlight=False,
    )
    console.print(_table({planned.label: found for planned, found in campaign.run(planned_runs(folder, quick=quick))}))
    print(
        "Alone, each knows its own rotation. Together they learn the others': no image moves, and no private network."
    )
    seconds = time.perf_counter() - began
    if lacking:
        print(f"{seconds:.0f} s. The runs are in {folder}; with plotly, `heterophony report {folder}` makes the page.")
        return
    page = report.write([folder], title="Four networks, four rotations, several ways to learn together")
    print(f"{seconds:.0f} s. Look at the figures: {page['page']}")


def _table(done: Mapping[str, Summary]) -> Table:
    """Return what came out of the runs, by method."""
    title = "Accuracy on test digits of all, the own and the others' rotations (per cent)"
    grid = Table(title=title, title_justify="left")
    for column in ("method", "what happens"):
        grid.add_column(column)
    for column in ("all", "own", "others", "worst", "sent"):
        grid.add_column(column, justify="right")
    for name, setting, what, _ in (run for run in RUNS if run[0] in done):
        if setting != MIXED:
            grid.add_section()  # one network for all: another game
        metrics = done[name].metrics
        figures = [percent(getattr(metrics, key)).removesuffix(" %") for key in ("acc", "wdp", "cdp", "worst")]
        grid.add_row(name, what, *figures, size(done[name].sent))
    return grid
