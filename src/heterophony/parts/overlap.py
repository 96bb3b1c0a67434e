"""Training while others are at work: what is learned on stale parameters is put aside, and added after the merge.

It is kept in the variable "learned", which the method declares.
"""

from __future__ import annotations

from heterophony.kernel.node import Node
from heterophony.kernel.work import Named
from heterophony.parts.aggregate import shifted
from heterophony.parts.node_optimiser import update_of


def put_aside(node: Node, before: Named) -> None:
    """Keep what a node has learned since `before`, and take its model back to there."""
    node.vars["learned"] = update_of(node, node.weights(), before)
    node.load(before)


def add_learned(node: Node, share: float) -> None:
    """Add this share of what was put aside, if anything was."""
    learned = node.vars.pop("learned", None)
    if learned:
        node.load(shifted(node.weights(), learned, share))
