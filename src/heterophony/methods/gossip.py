"""Gossip learning: peers never wait; each sends its model to one neighbour at random, and merges what has come.

Sent by a peer: its weights, and how many steps they have behind them.

Papers: Ormandi, Hegedus and Jelasity, Gossip Learning with Linear Models on Fully Distributed Data, 2013: Algorithm 1,
the variant that merges and then updates (MU). Hegedus, Danner and Jelasity, Decentralized Learning Works: An Empirical
Comparison of Gossip Learning and Federated Learning, 2021: two models are merged by their ages, and the merged one has
the larger age.
"""

from __future__ import annotations

import torch

from heterophony import (
    Deviation,
    Inbox,
    Kind,
    Loss,
    Mark,
    Method,
    Node,
    Round,
    Same,
    Scalar,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Training, mean, note_distance, task_loss

MODEL = Kind("model", to="peers", weights=Weights("model"), age=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "when models are merged",
        "as the next round begins, in the order in which they came",
        "A node does one thing at a time here. The papers merge whenever a model comes.",
    ),
    Deviation("networks", "any; ages count steps", "the papers have linear models, one row a step"),
    Deviation("start", "all begin alike", "a mean of networks that never were alike says little"),
)


class Gossip(Method):
    """Peers never wait: each trains, tells one neighbour at random, and merges what it is told, by age."""

    roles = ("peer",)
    kinds = (MODEL,)
    memory = ("age",)
    models = {"peer": {"model": Same(start="alike")}}
    headline = "local"
    unused = ("local.initial",)

    local: Training = Training()
    loss: Loss = task_loss

    @on(Round(also=(MODEL,)))
    def step(self, peer: Node, mail: Inbox) -> Steps:
        age = peer.vars.get("age", 0.0)
        for m in mail.also:
            own = peer.weights()
            together = mean([own, m.weights], [age, m.age])
            yield from note_distance(peer, own, together)
            peer.load(together)
            age = max(age, m.age)
        fitted = yield self.local.fit("model", self.loss)
        peer.vars["age"] = age + fitted.steps
        if peer.peers:
            chosen = int(torch.randint(len(peer.peers), (1,), generator=peer.rng("neighbour")))
            yield MODEL(peer.peers[chosen], weights=peer.weights(), age=peer.vars["age"])
        yield Mark("local")
        peer.round += 1
