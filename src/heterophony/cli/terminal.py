"""Tables for a terminal: they fit it, and are whole wherever there is room, or where a file or pipe takes them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

GAP = 2  # between columns
LEAST = 18  # of a column that is cut
ENDLESS = 10_000


def console(width: int | None = None) -> Console:
    """Return a console that prints data as they are: to rich, brackets and colons are markup."""
    return Console(width=width, markup=False, emoji=False)


def room() -> int:
    """Return the columns of the terminal; as many as needed where there is none, unless COLUMNS says so."""
    there = console()
    said = os.environ.get("COLUMNS", "").isdigit()
    return there.width if there.is_terminal or said else ENDLESS


def fitting(head: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str], room: int) -> list[int]:
    """Return which columns to show: `spare` ones go, the first named first, until a row fits or none is left."""
    widths, shown = _widths(head, rows), list(range(len(head)))
    for name in spare:
        if _sum([widths[j] for j in shown]) <= room:
            break
        shown = [j for j in shown if head[j] != name]
    return shown


def across(head: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return how wide a table is."""
    return _sum(_widths(head, rows))


def cut(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """Cut each row to one line: the first column stays as it is, the longest of the others gets what is left."""
    widths = _widths(head, rows)
    if _sum(widths) <= room or len(head) < 2:
        return [list(row) for row in rows]
    longest = max(range(1, len(head)), key=widths.__getitem__)
    widths = [width if j in (0, longest) else min(width, LEAST) for j, width in enumerate(widths)]
    widths[longest] = max(LEAST, widths[longest] - (_sum(widths) - room))
    return [[_short(cell, width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def show(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", right: bool = False) -> None:
    """Print a table, its figures to the right if asked; a row that does not fit is broken by the terminal itself."""
    made = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False,
                 collapse_padding=True)  # fmt: skip
    for place, column in enumerate(head):
        made.add_column(column, justify="right" if right and place else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    console(console(ENDLESS).measure(made).maximum).print(made)


def _widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[j]) for row in (head, *rows)) for j in range(len(head))]


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _short(text: str, width: int) -> str:
    """Cut after a whole word, if there is one."""
    if len(text) <= width:
        return text
    return (text[:width].rpartition(" ")[0] or text).rstrip(" ,;:")[: width - 1] + "…"
