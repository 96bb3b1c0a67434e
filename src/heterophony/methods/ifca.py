"""IFCA: several models at the server; every client takes the one that fits its data best.

Leaves a client: the weights of the model it chose after local training, which one that is, and from how many examples.
Leaves the server: all its models.
Equations: Algorithm 1 with model averaging (option II). The choice is by mean loss on the private rows.
Deviations: means are weighted by examples (`weighted=False`: the paper's). A model that nobody chose stays as it is.
A client evaluates the model it chose when it chooses it, before training: so its last product is of the models that the
last round began with; the server evaluates its models (`cluster-0`, ...) after every merge. With one cluster it is
FedAvg to the bit.
Reference: Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020.
"""

from __future__ import annotations

from heterophony import (
    Each,
    Family,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
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
from heterophony.parts import Cohort, Training, answers, ce, cross_entropy

MODELS = Kind("models", to="children", weights=Family("model", many="clusters"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), cluster=Scalar(low=0), examples=Scalar(low=0))


class IFCA(Method):
    """Clusters by loss: clients that choose the same model train it together."""

    roles = ("server", "client")
    kinds = (MODELS, UPDATE)
    headline = "cluster"
    unused = ("local.initial",)

    clusters: int = 2
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters < 1:
            raise ValueError(f"clusters is a number >= 1, got {self.clusters}")

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the server's models; the first is FedAvg's."""
        return ("model", *(f"model-{i}" for i in range(1, self.clusters)))

    def networks(self) -> NetworksByRole:
        return {"server": dict.fromkeys(self.slots, Same()), "client": {"model": Same()}}

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return MODELS(self.cohort.draw(server), weights=family([server.weights(slot) for slot in self.slots]))

    @on(Each(MODELS), role="client")
    def choose(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        models, labels = members_of(mail.weights), client.data[self.local.data].y
        chosen, least = 0, float("inf")
        for i in range(self.clusters if self.clusters > 1 else 0):  # of one there is nothing to choose
            client.load(models[i])
            loss = float(ce((yield Predict("model", self.local.data)), labels))
            chosen, least = (i, loss) if loss < least else (chosen, least)
        client.load(models[chosen])
        yield Note("cluster", chosen)
        yield Mark("cluster")
        yield self.local.fit("model", self.loss)
        examples = len(client.data[self.local.data])
        return UPDATE(weights=client.weights(), cluster=chosen, examples=examples)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        for i, slot in enumerate(self.slots):
            members = [m for m in mail if m.cluster == i]
            if members:
                server.load(self.cohort.mean(members), slot)
            yield Note(f"cluster-{i}.size", len(members))
            yield Mark(f"cluster-{i}", slot)
        server.round += 1
