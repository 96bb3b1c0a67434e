"""Merging with the parent's model while a node trains: by l2, EWC, FedFomo's rule or mutual learning (B-HFL)."""

from __future__ import annotations

from typing import Literal

from heterophony.kernel.node import Node
from heterophony.kernel.work import Loss, Named, Predict, Steps
from heterophony.parts.aggregate import difference, shifted
from heterophony.parts.ewc import Ewc
from heterophony.parts.losses import Mutual
from heterophony.parts.own_loss import loss_on
from heterophony.parts.retention import Retention, information
from heterophony.parts.training import Training
from heterophony.parts.transforms import Proximal

Merge = Literal["mix", "l2", "ewc", "fomo", "mutual"]


def train_beside(
    parent: Named, merge: Merge, pull: float, node: Node, how: Training, loss: Loss, retain: Retention
) -> Steps:
    """Train a node beside its parent's model: near it, or by its predictions (`mutual`, as in FML).

    `l2` holds all weights near the parent's, as in Ditto. `ewc` holds each as much as it matters to the parent's model
    on the node's rows. `fomo` first goes a part of the way, if the parent's model does better on these rows. `pull` is
    the weight of the pull, the part of the way, or the share of the KL term.
    """
    if not how.examples(node):
        return
    if merge == "l2":
        yield from retain.train(node, how, "model", loss, transform=Proximal(pull), aux={"anchor": parent})
        return
    own = node.weights()
    if merge == "fomo":
        mine = yield from loss_on(node, how.data)
        node.load(parent)
        better = (yield from loss_on(node, how.data)) < mine
        node.load(shifted(own, difference(parent, own), pull) if better else own)
        yield from retain.train(node, how, "model", loss)
        return
    node.load(parent)
    if merge == "ewc":
        fisher = yield from information(node, how, loss, retain.batches)
        node.load(own)
        aux = {"fisher": fisher, "centre": parent}
        yield from retain.train(node, how, "model", loss, transform=Ewc(pull), aux=aux)
        return
    opinion = yield Predict("model", how.data)
    node.load(own)
    yield from retain.train(node, how, "model", Mutual(pull), matters=loss, extra={"parent": opinion})
