"""FedBuff: buffered asynchronous aggregation; the server takes a step once it has K updates, however stale they are.

Sent by a client: by how much local training has changed its weights.
Sent by the server: its weights.

Paper: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022. Algorithm 1; Section 5
(updates are divided by sqrt(1 + staleness): `staleness.a` = 1/2). The sum is divided by K. A client that has answered
is replaced at once by another, drawn among the idle, which gets the model as it is then.
"""

from __future__ import annotations

from typing import Annotated

from heterophony import (
    Deviation,
    Each,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Round,
    Same,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import NodeOptimiser, Staleness, Training, engage, move, moving, release, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
DELTA = Kind("delta", to="parent", weights=Weights("model", change=True))

DEVIATIONS = (
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) travel as they are, not as differences, and are averaged plainly",
        "a step along differences of variances means nothing, and could make a variance negative",
    ),
)


class FedBuff(Method):
    """A round is one step of the server: K updates, whoever sent them."""

    roles = ("server", "client")
    kinds = (GLOBAL, DELTA)
    memory = ("engaged", "sum", "count", "states")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial",)

    buffer: Annotated[int, "K: how many updates the server waits for before a step"] = 10
    concurrency: Annotated[float, "share of the clients at work at a time; the next is drawn among the idle"] = 1.0
    staleness: Staleness = Staleness()
    server: NodeOptimiser = NodeOptimiser()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer < 1 or not 0 < self.concurrency <= 1:
            given = f"{self.buffer} and {self.concurrency}"
            raise ValueError(f"a buffer holds at least 1, and concurrency is a share in (0, 1], got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(engage(server, self.concurrency), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.loss)
        parameters = moving(client)
        delta = client.weights()
        for name in delta:
            if name in parameters:
                delta[name] = delta[name] - mail.weights[name]
        return DELTA(weights=delta)

    @on(Each(DELTA), role="server")
    def absorb(self, server: Node, mail: Message) -> Steps:
        yield Note("staleness", mail.staleness)
        release(server, [mail.sender])
        parameters = moving(server)
        discount = self.staleness.discount(mail.staleness)
        sums = server.vars.get("sum") or {}
        for name, tensor in mail.weights.items():
            share = discount if name in parameters else 1.0
            term = tensor * (share / self.buffer)
            sums[name] = sums[name] + term if name in sums else term
        count = server.vars.get("count", 0) + 1
        if count < self.buffer:
            server.vars["sum"], server.vars["count"] = sums, count
            return self.begin(server)
        server.vars["sum"], server.vars["count"] = None, 0
        target = server.weights()
        for name in target:
            target[name] = target[name] + sums[name] if name in parameters else sums[name]
        move(server, target, self.server)
        yield Mark("global")
        server.round += 1
