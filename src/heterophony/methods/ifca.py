"""IFCA: the server has several models, and each client trains the one that fits its data best.

Sent by a client: the weights of the model that it chose, after local training. With them go which model it is, and the
number of the client's examples. Not the losses by which it chose.
Sent by the server: all its models.

Paper: Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020. Algorithm 1 with model
averaging (option II). A client chooses by the mean loss on its private rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from heterophony import (
    Deviation,
    Each,
    Family,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Named,
    NetworksByRole,
    Node,
    Note,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    family,
    members_of,
    on,
)
from heterophony.parts import Cohort, Training, answers, task_loss

MODELS = Kind("models", to="children", weights=Family("model", many="clusters"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), cluster=Scalar(low=0), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation("means", "weighted by examples; `weighted = false` gives the paper's plain ones", "later papers weight"),
    Deviation(
        "evaluation",
        "a client's product is the model it chose, before training, so one merge older than the server's `cluster-i`",
        "the last choice is made at the begin of the last round",
    ),
    Deviation(
        "empty clusters",
        "a model that nobody chose stays as it is",
        "there is nothing to average; with one cluster it is FedAvg to the bit",
    ),
)


class IFCA(Method):
    """Clients that choose the same model, by its loss on their data, train it together."""

    roles = ("server", "client")
    kinds = (MODELS, UPDATE)
    headline = "cluster"
    unused = ("local.initial",)

    clusters: Annotated[int, "models at the server, one for each cluster of clients"] = 2
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters < 1:
            raise ValueError(f"clusters is a number >= 1, got {self.clusters}")

    @property
    def slots(self) -> tuple[str, ...]:
        """Return the names of the server's models. The first has the name that FedAvg's has."""
        return ("model", *(f"model-{i}" for i in range(1, self.clusters)))

    def networks(self) -> NetworksByRole:
        return {"server": dict.fromkeys(self.slots, Same()), "client": {"model": Same()}}

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return MODELS(self.cohort.draw(server), weights=family([server.weights(slot) for slot in self.slots]))

    @on(Each(MODELS), role="client")
    def choose(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        models = members_of(mail.weights)
        chosen = 0
        if self.clusters > 1:  # of one there is nothing to choose
            chosen = yield from self.best(client, models)
        client.load(models[chosen])
        yield Note("cluster", chosen)
        yield Mark("cluster")
        yield self.local.fit("model", self.loss)
        examples = self.local.examples(client)
        return UPDATE(weights=client.weights(), cluster=chosen, examples=examples)

    def best(self, client: Node, models: Mapping[int, Named]) -> Steps:
        """Return the number of the model with the least loss on the client's rows."""
        data = client.data[self.local.data]
        chosen, least = 0, float("inf")
        for i in range(self.clusters):
            client.load(models[i])
            outputs = yield Predict("model", self.local.data)
            loss = float(data.task.loss(outputs, data.y))
            if loss < least:
                chosen, least = i, loss
        return chosen

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        for i, slot in enumerate(self.slots):
            members = [m for m in mail if m.cluster == i]
            if members:
                server.load(self.cohort.mean(server, members, start=server.weights(slot)), slot)
            yield Note(f"cluster-{i}.size", len(members))
            yield Mark(f"cluster-{i}", slot)
        server.round += 1
