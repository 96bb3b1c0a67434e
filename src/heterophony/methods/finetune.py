"""FedAvg with fine-tuning: each client adapts a copy of the finished global model to its own data.

Sent by a client: its weights after local training and the number of its examples, as in FedAvg. The adapted model is
never sent.
Sent by the server: its model in every round. After every `every` rounds also the merged model, to all clients, for them
to adapt.

Papers: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
Algorithm 1, then plain local training. This is FedAvg-FT of Yu, Bagdasaryan and Shmatikov, Salvaging Federated Learning
by Local Adaptation, 2020.
"""

from __future__ import annotations

from dataclasses import replace
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
from heterophony.parts import Cohort, NodeOptimiser, Training, answers, move, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
ADAPT = Kind("adapt", to="children", weights=Weights("own"))

DEVIATIONS = (
    Deviation(
        "what is adapted",
        "the merged model of that very round, sent to all clients after every `every` rounds",
        '"after training" is after the last round, and clients outside the cohort need it too',
    ),
    Deviation(
        "adapting",
        "It is local training for `adapt` epochs. It takes virtual time. It also takes orders of the private rows, "
        "so the next round's batches are not FedAvg's.",
        "The papers do not say. With `adapt = 0` the global model is FedAvg's to the bit.",
    ),
)


class FineTune(Method):
    """FedAvg; every few rounds each client adapts the global model to its own data."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE, ADAPT)
    memory = ("states",)
    models = {"server": {"model": Same()}, "client": {"model": Same(), "own": Same()}}
    headline = "personalised"
    trusts = True
    unused = ("local.initial",)

    adapt: Annotated[int, "epochs of fine-tuning"] = 1
    adapt_lr: Annotated[float | None, "learning rate of fine-tuning; none: that of local training"] = None
    every: Annotated[int, "rounds from one fine-tuning to the next"] = 1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
    server: NodeOptimiser = NodeOptimiser()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1 or self.adapt < 0:
            raise ValueError(f"fine-tuning needs every >= 1 and adapt >= 0, got {self.every} and {self.adapt}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            weights = yield from self.cohort.merged(server, mail, self.local.on_public(self.loss))
            move(server, weights, self.server)
        yield Mark("global")
        done = server.round
        server.round += 1
        if server.round % self.every:
            return []
        return ADAPT(round=done, weights=server.weights())

    @on(Each(ADAPT), role="client")
    def personalise(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights, "own")
        if self.adapt:
            rate = self.adapt_lr or self.local.lr
            adapting = replace(self.local, epochs=self.adapt, steps=None, lr=rate)
            yield adapting.fit("own", self.loss)
        yield Mark("personalised", "own")
