"""Make docs/reference/commands.md: every command with its arguments and options, from the command line itself.

python tools/make_command_page.py

`tests/docs/test_command_page.py` fails where the page is not what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from heterophony.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
HEAD = """# Commands

Made by `tools/make_command_page.py` from the command line itself. `heterophony COMMAND --help` says the same.
Methods, settings, networks and data sets are listed by `heterophony methods`, `settings`, `models` and `data`.
"""


def page() -> str:
    """Return the text of the page."""
    root: Any = typer.main.get_command(app)
    out = [HEAD]
    for words, command in commands(root, ("heterophony",)):
        out += [f"## `{' '.join(words)}`", "", _line(command.help), ""]
        rows = [row for row in map(_row, command.params) if row]
        if rows:
            out += ["| argument or option | default | |", "|---|---|---|", *rows, ""]
    return "\n".join(out).rstrip() + "\n"


def commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command below a group, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        elif not command.hidden:
            yield (*words, name), command


def _row(parameter: Any) -> str:
    """Return the row of an argument or option; none for those that every command has, or that are hidden."""
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return ""
    if parameter.param_type_name == "argument":
        shown = parameter.name  # what else typer calls it depends on its version
    else:
        shown = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"| `{shown}` | {_default(parameter)} | {_line(getattr(parameter, 'help', None))} |"


def _default(parameter: Any) -> str:
    """Return what counts when nothing is said."""
    if parameter.required:
        return "must be given"
    value = parameter.default
    if value is None or value == () or value == [] or value == "" or callable(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"`{getattr(value, 'value', value)}`"


def _line(text: str | None) -> str:
    """Return a text on one line, as it may stand in a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


def main() -> None:
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main()
