"""The command line. Results on stdout, progress and errors on stderr; exit 2: bad input, exit 1: a failure."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from heterophony.cli import exporting, lists, looking, results, running, tuning
from heterophony.cli.deploying import app as deploy

app = typer.Typer(
    name="heterophony",
    help="Federated learning between participants that differ in model, data, task, hardware and place.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from heterophony import __version__

        print(f"heterophony {__version__}")
        raise typer.Exit
    # What the library has to say (which way of computing it chose, how far it is) goes beside the results.
    log, voice = logging.getLogger("heterophony"), Voice()
    context.call_on_close(partial(log.setLevel, log.level))
    context.call_on_close(partial(log.removeHandler, voice))
    log.addHandler(voice)
    log.setLevel(logging.INFO)


class Voice(logging.Handler):
    """Says on stderr what the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


COMMANDS: tuple[Callable[..., None], ...] = (
    *(running.run, running.resume, looking.show, looking.ledger),
    *(results.compare, results.report, results.reproduce, tuning.tune),
    *(lists.methods, lists.settings, lists.models, lists.data),
    *(exporting.export, exporting.predict, exporting.tree, running.demo),
)
for each in COMMANDS:
    app.command()(each)
app.add_typer(deploy, name="deploy")


def main() -> None:
    if not {"", os.getcwd()} & set(sys.path):  # where a user's own networks are (module:callable), as for `python -m`
        sys.path.insert(0, os.getcwd())
    command = typer.main.get_command(app)
    _without_variables(command)
    command()


def _without_variables(command: Any) -> None:
    """Read no option from the environment. Some versions of click say "(env var: 'None')" in their errors."""
    for option in command.params:
        option.show_envvar = False
    for each in getattr(command, "commands", {}).values():
        _without_variables(each)
