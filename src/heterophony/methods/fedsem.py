"""FedSEM: the server has several models, and gives each client the one whose weights are nearest to its own.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: the model of the client's cluster. Nobody is told who else is in it.

Paper: Xie, Long, Shen, Zhou, Wang, Jiang and Zhang, Multi-Center Federated Learning, 2020. The algorithm FeSEM
(stochastic expectation maximisation): a client belongs to the centre that is nearest to its weights (E), a centre
becomes the mean of its clients' weights (M), and clients go on from their centre.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    NetworksByRole,
    Node,
    Note,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, difference, norm, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "first centres",
        "After the first round in which as many clients as clusters are heard: models of clients, each the farthest "
        "from those chosen before. Until then all have one model.",
        "the paper does not say how its centres begin",
    ),
    Deviation(
        "means",
        "by examples, of the clients that were heard; `weighted = false` gives plain ones",
        "the paper's clients all take part in every round",
    ),
    Deviation("empty clusters", "a model that nobody is nearest to stays as it is", "there is nothing to average"),
    Deviation("steps", "one of E and one of M in a round", "as the paper's algorithm has them"),
    Deviation("clients not heard", "keep their cluster; before they are heard they have the first", "as ours must"),
)


class FedSEM(Method):
    """Clients whose weights are near the same centre share its model. With one cluster it is FedAvg, to the bit."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("homes",)
    headline = "cluster"
    unused = ("local.initial",)

    clusters: Annotated[int, "centres: models at the server, one for each cluster of clients"] = 2
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
    def begin(self, server: Node) -> list[Send]:
        homes, chosen = server.vars.get("homes", {}), self.cohort.draw(server)
        sends = []
        for i, slot in enumerate(self.slots):
            members = [client for client in chosen if homes.get(client, 0) == i]
            if members:
                sends.append(GLOBAL(members, weights=server.weights(slot)))
        return sends

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield Mark("cluster")
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        homes = server.vars.get("homes", {})
        if homes or len(mail) >= self.clusters:
            known = [m.weights for m in mail]
            centres = [server.weights(slot) for slot in self.slots] if homes else spread(known, self.clusters)
            near = {m.sender: nearest(m.weights, centres) for m in mail}
            server.vars["homes"] = homes = {**homes, **near}
        for i, slot in enumerate(self.slots):
            members = [m for m in mail if homes.get(m.sender, 0) == i]
            if members:
                server.load(self.cohort.mean(server, members, start=server.weights(slot)), slot)
            yield Note(f"{slot}.clients", len(members))
            yield Mark(f"cluster-{i}", slot)
        server.round += 1


def apart(one: Named, other: Named) -> float:
    """Return the distance of two models."""
    return norm(difference(one, other))


def nearest(weights: Named, centres: Sequence[Named]) -> int:
    """Return the number of the nearest centre."""
    gaps = [apart(weights, centre) for centre in centres]
    return gaps.index(min(gaps))


def spread(models: Sequence[Named], count: int) -> list[Named]:
    """Return so many of the models: the first, and each time the one that is farthest from those chosen."""
    chosen = [models[0]]
    while len(chosen) < count:
        gaps = [min(apart(model, other) for other in chosen) for model in models]
        chosen.append(models[gaps.index(max(gaps))])
    return chosen
