"""Mixture of experts: each client mixes a global model and one of its own, for each row as a gate says.

Sent by a client: the weights of its copy of the global model after local training, and how many examples they come
from. Nothing of its own model, and nothing of the gate.
Sent by the server: its weights.

Paper: Zec, Mogren, Martinsson, Sutfeld and Gillblad, Federated Learning using a Mixture of Experts, 2020. The global
model is FedAvg's. Then each client trains its own model and its gate, by the loss of h own + (1 - h) global, with the
global model as it is.
"""

from __future__ import annotations

from torch import Tensor

from heterophony import (
    Built,
    Data,
    Deviation,
    Each,
    Inbox,
    Kind,
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
from heterophony.parts import (
    Cohort,
    GatedOutputs,
    Nets,
    Training,
    answers,
    ce,
    cross_entropy,
    named_for_clients,
    named_for_server,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation("gate", "a network like the others, of which the first output counts", "its size is ours"),
    Deviation("rows", "all private rows train the global model", "in the paper clients may keep some from it"),
    Deviation(
        "order",
        "own model and gate learn in each round in which a client takes part, after the global model",
        "they need the global model as it is at that time",
    ),
)


class MixtureOfExperts(Method):
    """Everyone mixes the predictions of the global model and of its own, for each row by a gate of its own."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {
        "server": {"model": Same()},
        "client": {"model": Built(GatedOutputs, {"own": Same(), "common": Same(), "gate": Same()}, travels="common")},
    }
    headline = "personalised"
    serves = ("classification",)
    unused = ("local.initial",)

    cohort: Cohort = Cohort()
    local: Training = Training()

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=named_for_clients(server.weights()))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.alone, parts=("model.common",), only=("common",))
        yield self.local.fit("model", cross_entropy, only=("own", "gate"))
        yield Mark("personalised")
        return UPDATE(weights=named_for_server(client.weights()), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        server.round += 1

    def alone(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss of the copy of the global model by itself."""
        return {"model": {"ce": ce(nets["model.common"](batch.x), batch.y)}}
