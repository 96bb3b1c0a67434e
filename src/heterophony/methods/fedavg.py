"""Federated averaging.

Leaves a client: its weights after local training, and how many examples they come from.
Equations: Algorithm 1 (FederatedAveraging). With a `server` optimiser other than the plain one, Algorithm 2 of Reddi et
al. (FedOPT): the mean update is its pseudo-gradient.
Deviations: float buffers (BatchNorm's statistics) are averaged with the parameters; `weighted=False` gives the plain
mean that some later papers compare with; local training may take another loss or a gradient transform.
Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
"""

from __future__ import annotations

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
    Transform,
    Weights,
    on,
)
from heterophony.parts import Cohort, NodeOptimiser, Training, answers, cross_entropy, move

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))


class FedAvg(Method):
    """The server sends its model, a cohort trains it on private data, the server averages what comes back."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("states",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"

    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = cross_entropy
    transform: Transform | None = None  # is told the global weights as `anchor`
    server: NodeOptimiser = NodeOptimiser()

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield from self.local.first(client, self.loss)
        anchor = {"anchor": mail.weights} if self.transform else {}
        yield self.local.fit("model", self.loss, transform=self.transform, aux=anchor)
        return UPDATE(weights=client.weights(), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:  # a skipped round brings none
            move(server, self.cohort.mean(mail), self.server)
        yield Mark("global")
        server.round += 1
