"""Nodes that do nothing, as rows of a store: a row is a node's state and its mailbox, as a snapshot has them.

A node is either here or an object. As an object it takes tens of kilobytes, here as much as its own numbers take.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heterophony.base import codec
from heterophony.base.store import Store


class Idle:
    """Reads rows. Who wakes a node asks for both its parts, one after the other: a row is unpacked once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.latest: tuple[str, dict[str, Any]] = "", {}  # what was unpacked last, and not taken yet

    def __contains__(self, node: str) -> bool:
        return node in self.store

    def __iter__(self) -> Iterator[str]:
        return iter(self.store)

    def put(self, node: str, row: bytes, awake: bool) -> None:
        """Write a node's row. `awake` is who has mail or windows, or leads: a resumed run has its mailbox at once."""
        self.store.put(node, row, awake)
        self.latest = "", {}

    def state(self, node: str) -> dict[str, Any]:
        """Return the node's own state. It belongs to the caller."""
        return self._taken(node, "node")

    def box(self, node: str) -> dict[str, Any]:
        """Return the state of the node's mailbox."""
        return self._taken(node, "box")

    def _taken(self, node: str, part: str) -> dict[str, Any]:
        known, value = self.latest
        if known != node or part not in value:
            value = codec.unpack(self.store.get(node))
            self.latest = node, value
        found: dict[str, Any] = value.pop(part)
        return found
