"""Lists of what there is, one line each: whole where there is room, else cut to the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from heterophony.cli import terminal

Listed = dict[str, Any]


def show(rows: Sequence[Listed], columns: Sequence[str], spare: Sequence[str]) -> None:
    """Print a row a line. Where there is no room, families are counted, `spare` columns go, then texts are cut."""
    room = terminal.room()
    whole = [[_cell(row[column]) for column in columns] for row in rows]
    if terminal.across(columns, whole) <= room:
        terminal.show(columns, whole)
        return
    brief = [[_cell(counted(row[column])) for column in columns] for row in rows]
    shown = terminal.fitting(columns, brief, spare, room)
    head = [columns[j] for j in shown]
    terminal.show(head, terminal.cut(head, [[row[j] for j in shown] for row in brief], room))
    print(f"cut to {room} columns: a wider terminal, a pipe or --json has all of it")


def counted(value: Any) -> Any:
    """Return names with three or more of a family (ud/de, ud/en, ...) as ud/… (10); anything else as it is."""
    if not isinstance(value, list):
        return value
    families = [str(name).partition("/")[0] for name in value]
    many = {family: families.count(family) for family in families if families.count(family) > 2}
    pairs = zip(value, families, strict=True)
    return list(dict.fromkeys(f"{family}/… ({many[family]})" if family in many else name for name, family in pairs))


def families(rows: Sequence[Listed]) -> tuple[list[Listed], dict[str, list[str]]]:
    """Return missing data sets that differ by one word alone (ud/de, ud/en, ...) as one row, and which these are."""
    listed: dict[str, Listed] = {}
    members: dict[str, list[str]] = {}
    for row in rows:
        family, _, member = row["name"].partition("/")
        name = f"{family}/…"
        alike = {**row, "name": name, "summary": re.sub(rf"\b{re.escape(member)}\b", "…", row["summary"])}
        if member and not row["found"] and not row["problem"] and listed.setdefault(name, alike) == alike:
            members.setdefault(name, []).append(member)
        else:
            listed[row["name"]] = row
    return list(listed.values()), members


def tell(
    rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...], spare: tuple[str, ...] | None = None
) -> None:
    """Print a table that wraps; or, with `spare`, a line each, without these columns where there is no room."""
    if as_json:
        print(json.dumps(rows))
        return
    if spare is not None:
        show(rows, columns, spare)
        return
    grid = Table(*columns)
    for row in rows:
        grid.add_row(*(_cell(row[column]) for column in columns))
    terminal.console().print(grid)


def _cell(value: Any) -> str:
    """Return a value as it stands in a list."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
