"""Ditto: each client trains a copy of the global model, and a model of its own that is pulled towards the global one.

Sent by a client: the weights of its copy after local training, and how many examples they come from. Nothing of its own
model.
Sent by the server: its weights.

Paper: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021. Algorithm 1; Eq. 2 (the
own model minimises its loss plus lambda/2 |v - w|^2; w is the global model that the client got, lambda is `pull`).
"""

from __future__ import annotations

from typing import Annotated

from heterophony import (
    Deviation,
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
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Proximal, Retention, Training, answers, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("fork"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "solvers",
        "Both models take the same batches in one pass, at one rate. The own model's optimiser is kept from round "
        "to round.",
        "The paper leaves the solvers open, and they may differ there. Here `pull = 0` is solo, to the bit.",
    ),
    Deviation(
        "start",
        "own models start as the global one",
        "the paper does not say; another start would first be pulled a long way",
    ),
)


class Ditto(Method):
    """Every client trains a copy of the global model, and one of its own that stays near it.

    The slot "fork" holds the copy, the slot "model" the client's own.
    """

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("retained",)
    models = {
        "server": {"model": Same(start="alike")},
        "client": {"model": Same(start="alike"), "fork": Same(start="alike")},
    }
    headline = "personalised"
    trusts = True
    unused = ("local.initial", "local.private")

    pull: Annotated[float, "lambda: how strongly the own model is pulled to the global one; 0 is solo"] = 0.1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
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
        yield from self.retain.train(
            client,
            self.local,
            ("model", "fork"),
            self.loss,
            keep={"model": "own"},
            transform={"model": Proximal(self.pull)},
            aux={"anchor": mail.weights},
        )
        yield Mark("personalised")
        return UPDATE(weights=client.weights("fork"), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load((yield from self.cohort.merged(server, mail, self.local.on_public(self.loss))))
        yield Mark("global")
        server.round += 1
