"""What a user has written and names by `module:attribute`."""

from __future__ import annotations

import importlib
from typing import Any


def named(what: str, name: str) -> Any:
    """The attribute; `what` it is to be ("network") stands in the errors."""
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's module does while it is imported
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{what} {name!r}: cannot import module {module!r}, which must be in this folder or on PYTHONPATH "
            f"({type(error).__name__}: {reason})"
        ) from error
    if not callable(made := getattr(found, attribute, None)):
        problem = "is not callable" if hasattr(found, attribute) else "does not exist"
        raise ValueError(f"{what} {name!r}: {attribute!r} in module {module!r} {problem}")
    return made
