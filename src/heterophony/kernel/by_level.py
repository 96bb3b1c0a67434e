"""Options that may differ from node to node: one value for all, or a table of values.

A table's keys are node ids, levels ("0" is the root's, "1" that of its children), roles, and "*" for all others; the
most particular one counts. In TOML: `turns = { 1 = 2, leaf = 1, "*" = 4 }`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

T = TypeVar("T")
ByLevel: TypeAlias = dict[str, T] | T


def pick(value: ByLevel[T], *names: str) -> T | None:
    """Return the value for the first of these names that a table has, or that for "*". No table: one value for all."""
    if not isinstance(value, dict):
        return value
    for name in (*names, "*"):
        if name in value:
            return value[name]
    return None


def values(value: ByLevel[T]) -> list[T]:
    """Return all values there are."""
    return list(value.values()) if isinstance(value, dict) else [value]


def tables(part: Any, before: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the options of a method that are tables, by their whole names."""
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, dict) and _may_differ(field):
            yield before + field.name, value
        elif is_dataclass(value):
            yield from tables(value, f"{before}{field.name}.")


def _may_differ(field: Field[Any]) -> bool:
    """Return whether an option is declared as one that may differ. A dictionary may also be a plain value."""
    hint = field.type
    if isinstance(hint, str):  # of a file that postpones its annotations
        return "ByLevel" in hint
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return any(get_origin(choice) is dict for choice in get_args(hint))


def check_complete(part: Any, roles: Collection[str], optional: Collection[str] = (), before: str = "") -> None:
    """Raise unless every table says something for every role.

    Arguments:
        part: the method, or one of its parts.
        roles: those that it is of.
        optional: names of tables that need not; with a dot at the end, all tables of a part.
        before: what stands before the names of tables in errors, as "local.".
    """
    for name, table in tables(part):
        needed = name not in optional and f"{name.partition('.')[0]}." not in optional
        silent = [role for role in roles if role not in table]
        if needed and "*" not in table and silent:
            raise ValueError(f"{before}{name} has no value for {silent[0]}: give one, or one for '*'")


def check_known(part: Any, nodes: Collection[str], roles: Collection[str], depth: int) -> None:
    """Raise where a table names what is not there."""
    known = {*nodes, *roles, *map(str, range(depth + 1)), "*"}
    for name, table in tables(part):
        strange = [key for key in table if key not in known]
        if strange:
            raise ValueError(f"{name}: no node, level or role is called {strange[0]!r}")
