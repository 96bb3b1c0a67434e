"""FedAvg with fine-tuning: everyone adapts a copy of the finished global model to its own data.

Leaves a client: what leaves it in FedAvg. Leaves the server, beside its model in every round: that model after every
`every` rounds, to all clients, to be adapted; nothing comes back.
Equations: Algorithm 1 of McMahan et al., then plain local training (FedAvg-FT in the second paper).
Deviations: what is adapted is the merged model of that very round, also in the last one, and by clients outside the
cohort too; as local training does, for `adapt` epochs. It takes virtual time. With `adapt=0` the global model is
FedAvg's to the bit (otherwise adapting uses up orders of the private rows, and FedAvg's batches come in another).
References: McMahan et al., AISTATS 2017; Yu, Bagdasaryan and Shmatikov, Salvaging Federated Learning by Local
Adaptation, 2020.
"""

from __future__ import annotations

from dataclasses import replace

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
from heterophony.parts import Cohort, Training, answers, cross_entropy

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
ADAPT = Kind("adapt", to="children", weights=Weights("own"))


class FineTune(Method):
    """FedAvg; now and then everyone adapts the global model to its own data."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE, ADAPT)
    models = {"server": {"model": Same()}, "client": {"model": Same(), "own": Same()}}
    headline = "personalised"
    unused = ("local.initial",)

    adapt: int = 1  # epochs
    adapt_lr: float | None = None  # None: the rate of local training
    every: int = 1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = cross_entropy

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
        return UPDATE(weights=client.weights(), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(mail))
        yield Mark("global")
        done, server.round = server.round, server.round + 1
        return ADAPT(round=done, weights=server.weights()) if server.round % self.every == 0 else []

    @on(Each(ADAPT), role="client")
    def personalise(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights, "own")
        if self.adapt:
            how = replace(self.local, epochs=self.adapt, steps=None, lr=self.adapt_lr or self.local.lr)
            yield how.fit("own", self.loss)
        yield Mark("personalised", "own")
