"""What a user has written and names: `module:callable`, of a module in the current folder or on PYTHONPATH."""

from __future__ import annotations

import importlib
from typing import Any

from heterophony import fault


def function(name: str, what: str) -> Any:
    """The function; whatever goes wrong is one line that says of which network, method or data it was."""
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
    if not callable(made := getattr(found, attribute, None)):
        problem = "is not callable" if hasattr(found, attribute) else "does not exist"
        raise ValueError(f"{what} {name!r}: {attribute!r} in module {module!r} {problem}")
    return made


def call(name: str, what: str, **arguments: Any) -> Any:
    """What the function returns."""
    made = function(name, what)
    try:
        return made(**arguments)
    except Exception as error:
        raise ValueError(f"{what} {name!r}: the call failed ({_place(error)})") from error


def _absent(module: str, error: Exception) -> bool:
    """Whether there is no such module; one that is there may itself import something that is not."""
    if isinstance(error, ModuleNotFoundError):
        return error.name is not None and f"{module}.".startswith(f"{error.name}.")
    return not module or module.startswith(".")  # no name of a module at all


def _place(error: Exception) -> str:
    """What was raised, and where in the user's own files."""
    if isinstance(error, SyntaxError):  # raised by who reads the file: its place is in its text
        return _reason(error)
    return " ".join(fault.told(error).split())


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
