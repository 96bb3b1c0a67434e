"""CFL (clustered federated learning): where a common model suits nobody any more, its clients part in two groups.

Sent by a client: its weights after local training, and from how many examples they are, as in FedAvg. No rows.
Sent by the server: to each client the model of its cluster.

Paper: Sattler, Mueller and Samek, Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under
Privacy Constraints, IEEE TNNLS 2020. The algorithms Optimal Bipartition and Clustered Federated Learning, in their form
with weight updates. All clients are one cluster at first. A cluster whose mean update is shorter than `eps1` has come
to rest. Some client's own update may be longer than `eps2` even so. Then the cluster parts into the two groups whose
largest cosine across, alpha, is the least. It parts only if sqrt((1 - alpha) / 2) > `gamma`. The paper's gamma_max
bounds how far clients of one kind differ. Until a split, and so with `eps1=0`, it is FedAvg to the bit (dropout draws
others).
"""

from __future__ import annotations

from collections.abc import Generator
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
    Note,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Clusters, Cohort, Training, answers, bipartition, moving, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "eps1, eps2",
        "0.4 and 1.6 unless set, as in the authors' code. `gamma` is off unless set. The table notes both lengths "
        "for every cluster.",
        "They are lengths of updates, and depend on network and rate.",
    ),
    Deviation(
        "bipartition",
        "the optimum that the paper defines; its code has complete linkage",
        "most similar pairs joined first reach it exactly",
    ),
    Deviation(
        "lengths and cosines",
        "of parameters, not of BatchNorm's statistics",
        "statistics are no steps of an optimiser, so they have no direction",
    ),
    Deviation(
        "after a split",
        "both parts take the mean of their own updates in that very round",
        "as in the authors' code",
    ),
    Deviation("means", "by examples; `weighted = false` counts clients alike, as in the code", "as in fedavg"),
    Deviation(
        "absent clients, newcomers",
        "They are sent the model as it was before a split. They go with the part whose mean update is at the "
        "smaller angle to theirs, split by split. Until then they count in no mean.",
        "The paper compares with every member's update, which would have to be kept. Here two models a split are kept.",
    ),
    Deviation(
        "clusters of two, first rounds",
        "are parted as all others",
        "The authors' code parts only clusters of more than two, after twenty rounds. The paper does not say so.",
    ),
    Deviation(
        "evaluation",
        "as in ifca: a client's, with the model that it gets, before training; the server's, of its models "
        "(`cluster-0`, ...), after every merge",
        "as in ifca",
    ),
)


class CFL(Method):
    """FedAvg in clusters: one that is at rest while its members pull apart is split by how their updates point."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("clusters", "splits", "waiting")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "cluster"
    unused = ("local.initial",)

    eps1: Annotated[float, "a cluster is at rest when its mean update is shorter"] = 0.4
    eps2: Annotated[float, "and parts if a member's own is longer"] = 1.6
    gamma: Annotated[float, "how unlike the parts must be, from 0 (anything) to 1 (never)"] = 0.0
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.eps1 >= 0 or not self.eps2 >= 0 or not 0 <= self.gamma <= 1:
            given = f"{self.eps1}, {self.eps2} and {self.gamma}"
            raise ValueError(f"eps1 and eps2 are lengths >= 0 and gamma is in [0, 1], got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        cohort = self.cohort.draw(server)
        sends = []
        for members, weights in Clusters.of(server).models():
            own = set(members)
            asked = [client for client in cohort if client in own]
            if asked:
                sends.append(GLOBAL(asked, weights=weights))
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
        known = Clusters.of(server)
        for i, cluster in enumerate(list(known.clusters)):
            own = set(cluster.members)
            heard = [m for m in mail if m.sender in own]
            parts = [heard]
            if len(heard) > 1:
                parts = yield from self.part(server, i, cluster.weights, heard)
            start = cluster.weights
            means = [self.cohort.mean(server, part, start=start) if part else start for part in parts]
            if len(parts) == 2:
                known.split(i, parts, means, parameters(server))
            else:
                known.move(i, means[0])
        for m in mail:
            if m.sender in known.waiting:
                known.place(m)
        known.keep(server)
        for i, cluster in reversed([*enumerate(known.clusters)]):  # in the end the server holds the first's model
            server.load(cluster.weights)
            yield Note(f"cluster-{i}.size", len(cluster.members))
            yield Mark(f"cluster-{i}")
        server.round += 1

    def part(
        self, server: Node, i: int, start: Named, heard: list[Message]
    ) -> Generator[Note, None, list[list[Message]]]:
        """Return those who were heard of a cluster as one group, or as two."""
        names, updates = parameters(server), [m.weights for m in heard]
        rest = bipartition.length(self.cohort.mean(server, heard, start=start), start, names)
        longest = max(bipartition.length(update, start, names) for update in updates)
        yield Note(f"cluster-{i}.mean-update", rest)
        yield Note(f"cluster-{i}.longest-update", longest)
        if not (rest < self.eps1 and longest > self.eps2):
            return [heard]
        # The cosines are of all pairs, so they are computed only here, where they are needed.
        alike = bipartition.cosines(bipartition.products(updates, start, names))
        one, other = bipartition.bipartition(alike.tolist())
        alpha = alike[one][:, other].max()
        if not float(((1 - alpha) / 2).sqrt()) > self.gamma:
            return [heard]
        return [[heard[k] for k in one], [heard[k] for k in other]]


def parameters(server: Node) -> list[str]:
    """Return the names of what has a direction: BatchNorm's statistics have none."""
    steps = moving(server)
    return [name for name in server.weights() if name in steps]
