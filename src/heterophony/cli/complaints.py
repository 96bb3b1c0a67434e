"""One clear line for what goes wrong. Exit 2: bad input. Exit 1: a failure, of ours or of a user's own code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer

# Errors by module. What was not imported has raised none, and importing it takes long.
WORK = {
    "heterophony.engines.local_host": "ReactionError",
    "heterophony.compute.eager": "WorkError",
    "heterophony.engines.refusals": "Unheard",
}
DATA = {"heterophony.data.errors": "DataError"}
STALLED = {"heterophony.engines.engine": "Stalled"}


@contextmanager
def complaints(folder: Path | None = None) -> Iterator[None]:
    """Print one clear line, and leave with an exit code, instead of a traceback.

    `folder` is the run that can be resumed.
    """
    from heterophony.base import fault

    try:
        yield
    except KeyboardInterrupt:
        print(f"\nstopped; to go on: heterophony resume {folder}" if folder else "\nstopped", file=sys.stderr)
        raise typer.Exit(130) from None
    except OSError as error:
        complain(_about_disk(error, folder))
        raise typer.Exit(2) from None
    except imported_of(WORK) as error:
        cause = error.__cause__
        asked = isinstance(cause, imported_of(DATA))
        if cause is not None and not asked:
            sys.stderr.write(fault.trace(cause))
        complain(str(error))
        raise typer.Exit(2 if asked else 1) from None
    except imported_of(STALLED, ValueError) as error:
        if not _ours(error):
            raise
        complain(str(error))
        raise typer.Exit(2) from None


def imported_of(errors: Mapping[str, str], *others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return those of these errors whose modules have been imported, and the others."""
    here = sys.modules
    return others + tuple(getattr(here[module], name) for module, name in errors.items() if module in here)


def _about_disk(error: OSError, folder: Path | None) -> str:
    """Say what the operating system refused; of a full disk, how to go on."""
    hint = ""
    if error.errno == errno.ENOSPC:
        hint = f": make room, then heterophony resume {folder}" if folder else ": make room"
    return f"{error.filename or folder or 'disk'}: {(error.strerror or str(error)).lower()}{hint}"


def complain(text: str) -> None:
    """Print one line to stderr."""
    print(f"heterophony: {' '.join(text.split())}", file=sys.stderr)


def _ours(error: Exception) -> bool:
    """Return whether the text was written for the user.

    It is, if the error is of a class of our own, or was raised by our own code.
    """
    if type(error).__module__.startswith("heterophony"):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("heterophony")
