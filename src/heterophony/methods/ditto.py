"""Ditto: beside the copy of the global model, every client keeps a model of its own that is pulled towards it.

Leaves a client: what leaves it in FedAvg; nothing of its own model.
Equations: Algorithm 1. The client's own model minimises Eq. 2, its loss plus lambda/2 |v - w|^2 with w the global model
that it got; `pull` is lambda.
Deviations: both models take the same batches in one pass, with one rate (the paper's solvers may differ); the own
model's optimiser is kept from round to round. With `pull=0` the own model is SOLO's to the bit.
Reference: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.
"""

from __future__ import annotations

from typing import Any

from heterophony import (
    Each,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Node,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Proximal, Retention, Training, answers, cross_entropy

GLOBAL = Kind("global", to="children", weights=Weights("fork"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))


class Ditto(Method):
    """Every client trains a copy of the global model, and one of its own that stays near it."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("retained",)
    models = {
        "server": {"model": Same(start="alike")},
        "client": {"model": Same(start="alike"), "fork": Same(start="alike")},
    }
    headline = "personalised"
    unused = ("local.initial",)

    pull: float = 0.1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = cross_entropy
    retain: Retention = Retention()  # against forgetting, where data come as a stream

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pull >= 0:
            raise ValueError(f"pull is a weight >= 0, got {self.pull}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights, "fork")
        near: dict[str, Any] = {"transform": {"model": Proximal(self.pull)}, "aux": {"anchor": mail.weights}}
        yield from self.retain.train(client, self.local, ("model", "fork"), self.loss, keep={"model": "own"}, **near)
        yield Mark("personalised")
        return UPDATE(weights=client.weights("fork"), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(mail))
        yield Mark("global")
        server.round += 1
