"""CFL (clustered federated learning): where a common model suits nobody any more, its clients part in two groups.

Leaves a client: what leaves it in FedAvg. Leaves the server: to each client the model of its cluster.
Equations: the algorithms Optimal Bipartition and Clustered Federated Learning, in their form with weight updates. All
clients are one cluster at first. A cluster whose mean update is shorter than `eps1` has come to rest; if some client's
own update is longer than `eps2` even so, it parts into the two groups whose largest cosine across, alpha, is the least,
provided that sqrt((1 - alpha) / 2) > `gamma`. The paper's gamma_max bounds how far clients of one kind differ.
Deviations: `eps1` and `eps2` are those of public code unless set; they are lengths of updates, so that they
depend on network and rate (the table notes both lengths for every cluster). Means count clients by examples
(`weighted=False`: alike, as in the code). The two parts of a cluster each take the mean of their own updates in that
very round, as in the code. The code's clustering is by complete linkage; ours is the optimum that the paper defines.
Lengths and cosines are of parameters, not of BatchNorm's statistics. Members that were not heard when their cluster
parts go with its larger part; whoever joins later, with the largest cluster (the paper walks down a tree of splits). A
client evaluates its cluster's model when it gets it, before training; the server evaluates its models (`cluster-0`,
...) after every merge. Until a split, and so with `eps1=0`, it is FedAvg to the bit (dropout draws others).
Reference: Sattler, Mueller and Samek, Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization
under Privacy Constraints, IEEE TNNLS 2020.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from heterophony.federation import Federation
from heterophony.fields import Scalar, Weights
from heterophony.mailbox import Inbox
from heterophony.message import Kind, Message, Send
from heterophony.method import Method
from heterophony.node import Node
from heterophony.parts.aggregate import Named, mean
from heterophony.parts.bipartition import bipartition, cosines, length, products
from heterophony.parts.losses import cross_entropy
from heterophony.parts.node_optimiser import moving
from heterophony.parts.training import Training
from heterophony.reaction import Each, Every, Round, on
from heterophony.work import Loss, Mark, Note, Steps

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))


class CFL(Method):
    """FedAvg in clusters: one that is at rest while its members pull apart is split by how their updates point."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("clusters",)
    models = {"server": {"model": "same"}, "client": {"model": "same"}}
    headline = "cluster"

    eps1: float = 0.4  # a cluster is at rest when its mean update is shorter
    eps2: float = 1.6  # and parts if a member's own is longer
    gamma: float = 0.0  # how unlike the parts must be, from 0 (anything) to 1 (never)
    fraction: float = 1.0
    weighted: bool = True
    quorum: int | float = 1
    deadline: float | None = None
    local: Training = Training()
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.eps1 >= 0 or not self.eps2 >= 0 or not 0 <= self.gamma <= 1:
            given = f"{self.eps1}, {self.eps2} and {self.gamma}"
            raise ValueError(f"eps1 and eps2 are lengths >= 0 and gamma is in [0, 1], got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        cohort, sends = server.cohort(self.fraction), []
        for cluster in self.clusters(server):
            own = set(cluster["members"])
            if asked := [client for client in cohort if client in own]:
                sends.append(GLOBAL(asked, weights=cluster["weights"]))
        return sends

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield Mark("cluster")
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights(), examples=len(client.data[self.local.data]))

    @on(Every(UPDATE, of="cohort", quorum="quorum", deadline="deadline"), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        kept: list[dict[str, Any]] = []
        new: list[dict[str, Any]] = []
        for i, cluster in enumerate(self.clusters(server)):
            own = set(cluster["members"])
            heard = [m for m in mail if m.sender in own]
            parts = (yield from self.part(server, i, cluster["weights"], heard)) if len(heard) > 1 else [heard]
            home = {m.sender: k for k, part in enumerate(parts) for m in part}
            larger = max(range(len(parts)), key=lambda k: len(parts[k]))
            for k, part in enumerate(parts):
                members = [client for client in cluster["members"] if home.get(client, larger) == k]
                weights = mean([m.weights for m in part], self.shares(part)) if part else cluster["weights"]
                (new if k else kept).append({"members": members, "weights": weights})
        server.vars["clusters"] = kept + new
        for i, cluster in reversed([*enumerate(kept + new)]):  # in the end the server holds the first cluster's model
            server.load(cluster["weights"])
            yield Note(f"cluster-{i}.size", len(cluster["members"]))
            yield Mark(f"cluster-{i}")
        server.round += 1

    def clusters(self, server: Node) -> list[dict[str, Any]]:
        """Members and weights of each; whoever is in none is in the largest."""
        known = [dict(cluster) for cluster in server.vars.get("clusters", ())]
        if not known:
            return [{"members": list(server.children), "weights": dict(server.weights())}]
        placed = {client for cluster in known for client in cluster["members"]}
        largest = max(known, key=lambda cluster: len(cluster["members"]))
        largest["members"] = [*largest["members"], *(c for c in server.children if c not in placed)]
        return known

    def part(self, server: Node, i: int, start: Named, heard: list[Message]) -> Generator[Note, None, list[Any]]:
        """Those who were heard as one group, or as two."""
        steps, updates = moving(server), [m.weights for m in heard]
        names = [name for name in start if name in steps]
        rest = length(mean(updates, self.shares(heard)), start, names)
        longest = max(length(update, start, names) for update in updates)
        yield Note(f"cluster-{i}.mean-update", rest)
        yield Note(f"cluster-{i}.longest-update", longest)
        if rest < self.eps1 and longest > self.eps2:
            alike = cosines(products(updates, start, names))  # of all pairs, so only where it is needed
            one, other = bipartition(alike.tolist())
            if float(((1 - alike[one][:, other].max()) / 2).sqrt()) > self.gamma:
                return [[heard[k] for k in one], [heard[k] for k in other]]
        return [heard]

    def shares(self, heard: list[Message]) -> list[float] | None:
        return [m.examples for m in heard] if self.weighted else None

    def traffic(self, federation: Federation, rounds: int) -> dict[str, int]:
        server = federation.first("server")
        model = sum(tensor.nbytes for tensor in server.weights().values())
        sent = rounds * len(server.cohort(self.fraction))
        return {"global": sent * model, "update": sent * (model + 8)}
