"""pFedMe: every client has a model of its own near a local copy of the global one, and the copy follows it.

Sent by a client: the weights of its local copy w_i after local training, and how many examples they come from. Its own
model theta_i never leaves it.
Sent by the server: its weights.

Paper: Dinh, Tran and Nguyen, Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020. Algorithm 1 (pFedMe).
For each batch, theta_i goes `inner` steps (K) of local training down its loss plus lambda/2 |theta_i - w_i|^2. Then
w_i <- w_i - eta lambda (w_i - theta_i). The server moves by beta (`server.rate`) towards the mean of the w_i.
"""

from __future__ import annotations

import math
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
    Named,
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
from heterophony.parts import (
    Cohort,
    NodeOptimiser,
    Proximal,
    Training,
    answers,
    difference,
    move,
    moving,
    shifted,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation("mean", "by examples; `weighted = false` gives the paper's plain one", "as in fedavg"),
    Deviation(
        "local rounds",
        "as many as local training has batches: R is `local.steps`, or `local.epochs` over the rows",
        "so a budget of epochs means the same as in other methods; the paper draws R batches",
    ),
    Deviation(
        "inner solver",
        "K steps of local training with the batch, by a fresh optimiser, from the theta_i of the batch before",
        "the paper asks for an accuracy nu and leaves the solver open; its code takes K such steps",
    ),
    Deviation(
        "eta",
        "`local.lr` unless set",
        "Without the inner steps it is then FedAvg's rate. The paper has 0.005, with many more rounds.",
    ),
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) of theta_i are sent with w_i",
        "w_i is never asked for outputs, so it has none of its own",
    ),
)


class PFedMe(Method):
    """Own models stay near local copies of the global one (Moreau envelopes); the copies follow them and are averaged.

    With `inner=1` and `rate` = 1 / `pull` it is FedAvg, up to rounding.
    """

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("states",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "personalised"
    unused = ("local.initial", "local.momentum", "local.nesterov")

    pull: Annotated[float, "lambda: how strongly an own model is pulled to the local copy of the global one"] = 15.0
    rate: Annotated[
        float | None, "eta: a local copy moves by rate * pull times its distance from the own model; none: `local.lr`"
    ] = None
    inner: Annotated[int, "K: steps of the own model with each batch"] = 5
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
    server: NodeOptimiser = NodeOptimiser()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pull < math.inf or not 0 <= (self.rate or 0) < math.inf or self.inner < 1:
            given = f"{self.pull}, {self.rate} and {self.inner}"
            raise ValueError(f"pFedMe needs a pull >= 0, a rate >= 0 and inner >= 1, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        rate = self.local.at(client).lr if self.rate is None else self.rate
        near: Named = mail.weights  # w_i; the network holds theta_i
        for rows in self.local.batches(client):
            yield self.local.fit(
                "model",
                self.loss,
                rows=rows,
                batch=None,
                epochs=self.inner,
                steps=None,
                transform=Proximal(self.pull),
                aux={"anchor": near},
            )
            near = shifted(near, difference(client.weights(), near), rate * self.pull)
        yield Mark("personalised")
        own, parameters = client.weights(), moving(client)
        copy = {name: near[name] if name in parameters else own[name] for name in own}
        return UPDATE(weights=copy, examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            move(server, self.cohort.mean(server, mail), self.server)
        yield Mark("global")
        server.round += 1
