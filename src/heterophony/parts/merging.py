"""Merging with the parent's model while a node trains: by l2, or by mutual learning (B-HFL)."""

from __future__ import annotations

from typing import Literal

from heterophony.kernel.node import Node
from heterophony.kernel.work import Loss, Named, Predict, Steps
from heterophony.parts.losses import Mutual
from heterophony.parts.retention import Retention
from heterophony.parts.training import Training
from heterophony.parts.transforms import Proximal

Merge = Literal["mix", "l2", "mutual"]


def train_beside(
    parent: Named, merge: Merge, pull: float, node: Node, how: Training, loss: Loss, retain: Retention
) -> Steps:
    """Train a node beside its parent's model: near it (`l2`, as in Ditto), or by its predictions (`mutual`, as in FML).

    `pull` is the weight of the pull to the parent's model, or the share of the KL term.
    """
    if merge == "l2":
        yield from retain.train(node, how, "model", loss, transform=Proximal(pull), aux={"anchor": parent})
        return
    own = node.weights()
    node.load(parent)
    opinion = yield Predict("model", how.data)
    node.load(own)
    yield from retain.train(node, how, "model", Mutual(pull), matters=loss, extra={"parent": opinion})
