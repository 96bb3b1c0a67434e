"""show, ledger: what runs have come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from heterophony.base.amounts import size
from heterophony.cli import terminal
from heterophony.cli.complaints import complaints
from heterophony.cli.options import Json

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary

out = terminal.console()
MOST = 40  # participants, edges or incidents that a person is shown of more
All = Annotated[bool, typer.Option("--all", help=f"Print every row, not only the first {MOST}.")]


def show(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    against: Annotated[Path | None, typer.Option(help="Another run: who gains by this one, and who loses.")] = None,
    every: All = False,
    as_json: Json = False,
) -> None:
    """Show what a run has come to, finished or not."""
    from heterophony.runs import show as view
    from heterophony.runs.summary import Summary

    with complaints():
        found = Summary.load(folder)
        tell(found if against is None else found.having(view.against(folder, against)), as_json, every=every)


def ledger(
    folder: Annotated[Path, typer.Argument(help="A run folder.")], every: All = False, as_json: Json = False
) -> None:
    """Show what left each node of a run: messages and bytes by kind and edge, and what went wrong."""
    from heterophony.runs import show as view

    with complaints():
        edges, incidents = view.ledger(folder)
    if as_json:
        print(json.dumps({"edges": edges, "incidents": incidents}))
        return
    most = None if every else MOST
    grid = Table("from", "to", "kind", "messages", "bytes", "status")
    for edge in edges[:most]:
        grid.add_row(
            *(str(edge[key]) for key in ("from", "to", "kind", "messages")), size(edge["bytes"]), edge["status"]
        )
    out.print(grid)
    _say_rest(len(edges), "rows", every)
    for incident in incidents[:most]:
        out.print(
            f"{incident['time']:g} s  {incident['node']}: {incident['incident']} {incident['detail']}", highlight=False
        )
    _say_rest(len(incidents), "incidents", every)


def tell(summary: Summary, as_json: bool, kept: bool = True, every: bool = False) -> None:
    """Print a summary: as one line of JSON, or as a table with lines below it."""
    from heterophony.runs import show as view

    if as_json:
        print(json.dumps(summary.as_json()))
        return
    out.print(view.table(summary, None if every or not kept else MOST))
    if kept:
        _say_rest(len(summary.metrics.participants), "participants", every, "heterophony show FOLDER ")
    for line in view.lines(summary, kept):
        print(line)


def _say_rest(count: int, what: str, every: bool, command: str = "") -> None:
    """Say how to see all, where only some are shown."""
    if not every and count > MOST:
        print(f"{MOST} of {count} {what}; all of them: {command}--all, or --json")
