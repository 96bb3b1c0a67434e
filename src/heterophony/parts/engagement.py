"""Which children are at work for an asynchronous node.

The node's variable "engaged" keeps it; a method that uses this declares the variable in its `memory`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from heterophony.base.seeds import derive
from heterophony.kernel.node import Node


def engage(node: Node, concurrency: float = 1.0) -> tuple[str, ...]:
    """Return the idle children to be set to work now, and remember them as working.

    They are drawn at random, as many as are needed so that the share `concurrency` of all children, at least one, is at
    work.
    """
    known = node.vars.setdefault("engaged", {"working": [], "drawn": 0})
    busy = set(known["working"])
    idle = [child for child in node.children if child not in busy]
    wanted = max(1, round(concurrency * len(node.children))) - len(busy)
    if wanted < len(idle):
        draw = random.Random(derive(node.seed, node.id, "engage", known["drawn"]))
        idle = [idle[i] for i in sorted(draw.sample(range(len(idle)), max(0, wanted)))]
    known["working"] = [*known["working"], *idle]
    known["drawn"] += 1
    return tuple(idle)


def release(node: Node, children: Iterable[str]) -> None:
    """Remember that these children have answered and are idle."""
    known = node.vars["engaged"]
    gone = set(children)
    known["working"] = [child for child in known["working"] if child not in gone]
