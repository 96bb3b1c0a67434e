"""Who is at work for an asynchronous node. Kept in the variable "engaged", which the method declares."""

from __future__ import annotations

import random
from collections.abc import Iterable

from heterophony.base.seeds import derive
from heterophony.kernel.node import Node


def engage(node: Node, concurrency: float = 1.0) -> tuple[str, ...]:
    """Idle children, drawn at random, to be set to work now, so that this share of all (at least one) is at work."""
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
    """These have answered."""
    known, gone = node.vars["engaged"], set(children)
    known["working"] = [child for child in known["working"] if child not in gone]
