"""What a user has written and names: `module:callable`, of a module in the current folder or on PYTHONPATH."""

from __future__ import annotations

import importlib
from typing import Any


def function(name: str, what: str) -> Any:
    """The function; whatever goes wrong is one line that says of which network, method or data it was."""
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's module does while it is imported
        raise ValueError(
            f"{what} {name!r}: cannot import module {module!r}, which must be in this folder or on PYTHONPATH "
            f"({_reason(error)})"
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
        raise ValueError(f"{what} {name!r}: the call failed ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
