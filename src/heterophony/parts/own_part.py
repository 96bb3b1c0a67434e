"""The weights of a part of a network, by the path that an option names."""

from __future__ import annotations

from heterophony.data.errors import DataError
from heterophony.kernel.fields import within
from heterophony.kernel.node import Node
from heterophony.kernel.work import Named


def part_of(node: Node, path: str) -> Named:
    """Return the weights of a part of what travels; raise where nothing does."""
    own = node.weights()
    found = within(own, path)
    if not found:
        known = ", ".join(dict.fromkeys(name.partition(".")[0] for name in own))
        raise DataError(f"part = {path!r}, but only {known} of the network may travel: set part to one of these")
    return found
