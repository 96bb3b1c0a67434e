"""A user's own functions, named as `module:callable`. The module is in the current folder or on PYTHONPATH."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any

from heterophony.base import fault

log = logging.getLogger(__name__)


class Untrusted(ValueError):
    """An error: a file names code that is not ours, and nobody has said that it may run."""


def permit(named: Sequence[tuple[str, str]], where: str, trust: bool) -> None:
    """Raise `Untrusted` if a file names code to import and its reader does not trust whoever wrote it.

    `named` has pairs: what it is ("network"), and its name ("nets:small"). `where` is the file. Importing a module runs
    it, whatever name stands behind the colon.
    """
    if not named:
        return
    modules = ", ".join(dict.fromkeys(name.partition(":")[0] for _, name in named))
    texts = ", ".join(dict.fromkeys(f"{what} {name!r}" for what, name in named))
    if not trust:
        raise Untrusted(
            f"{where} names {texts}, which would import and run {modules}: "
            "if you trust whoever wrote it, add --trust (in Python trust=True)"
        )
    log.warning("importing %s, as %s names %s", modules, where, texts)


def function(name: str, what: str) -> Any:
    """Return the function of this name. `what` is said in errors, which are one line: a network, a method, data."""
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's module does while it is imported
        if _absent(module, error):
            raise ValueError(
                f"{what} {name!r}: cannot import module {module!r}, which must be in this folder or on PYTHONPATH "
                f"({_reason(error)})"
            ) from error
        raise ValueError(
            f"{what} {name!r}: module {module!r} was found, but importing it raised {_place(error)}"
        ) from error
    made = getattr(found, attribute, None)
    if not callable(made):
        problem = "is not callable" if hasattr(found, attribute) else "does not exist"
        raise ValueError(f"{what} {name!r}: {attribute!r} in module {module!r} {problem}")
    return made


def call(name: str, what: str, *positional: Any, **arguments: Any) -> Any:
    """Return what the function of this name returns for these arguments."""
    made = function(name, what)
    try:
        return made(*positional, **arguments)
    except Exception as error:
        raise ValueError(f"{what} {name!r}: the call failed ({_place(error)})") from error


def _absent(module: str, error: Exception) -> bool:
    """Tell whether the module itself is missing, rather than something that it imports."""
    if isinstance(error, ModuleNotFoundError):
        return error.name is not None and f"{module}.".startswith(f"{error.name}.")
    return not module or module.startswith(".")  # no name of a module at all


def _place(error: Exception) -> str:
    """Return what was raised, and where in the user's own files."""
    if isinstance(error, SyntaxError):  # no line of the file has run; its text says which line it is
        return _reason(error)
    return " ".join(fault.in_one_line(error).split())


def _reason(error: Exception) -> str:
    """Return an error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
