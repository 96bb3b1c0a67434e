"""Residual links of a tree: models that pass over the levels between (B-HFL)."""

from __future__ import annotations

from collections.abc import Sequence

from heterophony.kernel.message import Message
from heterophony.kernel.node import Node
from heterophony.kernel.work import Named
from heterophony.parts.aggregate import mean
from heterophony.parts.node_optimiser import NodeOptimiser, move
from heterophony.parts.updates import norm


def follow(node: Node, mail: Sequence[Message], optimiser: NodeOptimiser, state: str, per_link: bool) -> None:
    """Move a node's model towards what came along residual links.

    With `per_link` each link has a step and a state of the optimiser of its own, in the order of the senders' names.
    Otherwise there is one step towards the mean.
    """
    if not mail:
        return
    if not per_link:
        move(node, mean([m.weights for m in mail]), optimiser, state)
        return
    for sender in sorted({m.sender for m in mail}):
        models = [m.weights for m in mail if m.sender == sender]
        move(node, mean(models), optimiser, f"{state}/{sender}")


def longest(mail: Sequence[Message], updates: Sequence[Named], count: int, averaged: bool) -> list[Named]:
    """Return the models with the longest updates, or their mean (SELECTRESIDUALS)."""
    order = sorted(range(len(mail)), key=lambda i: (-norm(updates[i]), mail[i].sender))
    models = [mail[i].weights for i in order[:count]]
    return [mean(models)] if averaged else models
