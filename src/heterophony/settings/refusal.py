"""What is said of a setting that its schema refuses: the field by its whole name, and what there is instead."""

from __future__ import annotations

import json
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from heterophony.base.wording import listed, meant

TABLES = ("model_type", "model_attributes_type", "dict_type")


def refusal(schema: type[BaseModel], error: ValidationError, whole: str = "setting") -> str:
    """Say in one line what is wrong first. A misspelt field goes before the one that is missing for it."""
    found = error.errors()
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    path, above, hint = _place(schema, first["loc"])
    return f"{'.'.join(path) or whole}: {_reason(first, path, above, hint, whole)}"


def fields(table: type[BaseModel]) -> list[str]:
    """Return the names of its fields, as a file writes them."""
    return [field.alias or name for name, field in table.model_fields.items()]


def _reason(first: Any, path: list[str], above: type[BaseModel] | None, hint: Any, whole: str) -> str:
    kind, given = first["type"], first["input"]
    if kind == "extra_forbidden" and above is not None:
        known = fields(above)
        table = f"[{'.'.join(path[:-1])}]" if len(path) > 1 else f"a {whole}"
        return f"there is no such field{meant(path[-1], known)}; {table} has {listed(known)}"
    if kind == "tuple_type":
        plain = get_args(hint)[:1] == (str,) and isinstance(given, str)
        return "must be a list" + (f", such as [{json.dumps(given)}]" if plain else "")
    if kind in TABLES:
        return "must be a table of its own keys"
    return str(first["msg"]).removeprefix("Value error, ").lower()


def _place(schema: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], type[BaseModel] | None, Any]:
    """Return the names on the way to a value, the table that it is in, and its own type.

    Names of alternatives of its type are left out.
    """
    path: list[str] = []
    above: type[BaseModel] | None = None
    here: Any = schema
    for part in loc:
        if here is None:  # what follows tells alternatives apart ("str"), not places
            break
        path.append(str(part))
        if isinstance(here, type) and issubclass(here, BaseModel):
            above = here
            hints = {field.alias or name: field.annotation for name, field in here.model_fields.items()}
            here = _inner(hints.get(str(part)))
        else:
            here = _inner(get_args(here)[-1 if get_origin(here) is dict else 0])
    return path, above, here


def _inner(hint: Any) -> Any:
    """Return the table, or the collection of such, that a type may be; None: it is a plain value."""
    if get_origin(hint) in (Union, UnionType):
        return next((found for found in map(_inner, get_args(hint)) if found is not None), None)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    return hint if get_origin(hint) in (dict, tuple) else None
