"""FedAvg (federated averaging): clients train the server's model on their data, and the server averages the results.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: its weights.

Paper: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.
Algorithm 1 (FederatedAveraging). With a `server` optimiser other than the plain one, it is Algorithm 2 of Reddi et al.,
Adaptive Federated Optimization, ICLR 2021 (FedOPT): the mean update is the optimiser's pseudo-gradient.
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
    Transform,
    Weights,
    on,
)
from heterophony.parts import Cohort, NodeOptimiser, Training, answers, move, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) are averaged with the parameters, or stay private (`models.buffers`)",
        "the paper has no BatchNorm; leaving them out silently is a known mistake",
    ),
    Deviation(
        "weights", "by examples; `weighted = false` gives the plain mean", "later papers compare with the plain mean"
    ),
    Deviation(
        "local training",
        "may take another loss, or a transform of the gradients",
        "other methods are made of this one, such as fedprox",
    ),
)


class FedAvg(Method):
    """The server sends its model, a cohort trains it on private data, the server averages what comes back."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("states",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    trusts = True

    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
    transform: Annotated[Transform | None, "of local gradients; it is given the global weights as `anchor`"] = None
    server: NodeOptimiser = NodeOptimiser()

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield from self.local.before_first_round(client, self.loss)
        anchor = {"anchor": mail.weights} if self.transform else {}
        yield self.local.fit("model", self.loss, transform=self.transform, aux=anchor)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:  # a skipped round brings none
            weights = yield from self.cohort.merged(server, mail, self.local.on_public(self.loss))
            move(server, weights, self.server)
        yield Mark("global")
        server.round += 1
