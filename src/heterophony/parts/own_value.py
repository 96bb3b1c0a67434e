"""A node's own value of an option that may differ from node to node (`ByLevel`)."""

from __future__ import annotations

from typing import TypeVar

from heterophony.kernel.by_level import ByLevel, pick
from heterophony.kernel.node import Node

T = TypeVar("T")


def names_of(node: Node) -> tuple[str, str, str]:
    """Return what a table of values may call a node: its id, its level and its role.

    In a deeper tree a node keeps its level as a variable; else who has a parent is on level 1.
    """
    level = node.vars.get("level", 0 if node.parent is None else 1)
    return node.id, str(level), node.role


def own_value(value: ByLevel[T], node: Node) -> T | None:
    """Return a node's own value; None where a table says nothing of it."""
    return pick(value, *names_of(node))
