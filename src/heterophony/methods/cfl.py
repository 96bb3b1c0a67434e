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
Lengths and cosines are of parameters, not of BatchNorm's statistics. Whoever was not heard when its cluster parted, or
joins later, is sent the model as it was before that split, and goes where its update points: to the part whose mean
update, not whose most similar member, is at the smaller angle; then to the next split on its way. Its update counts in
no mean until it has arrived. A client evaluates the model that it gets, before training; the server evaluates its
models (`cluster-0`, ...) after every merge. The code parts only clusters of more than two, after twenty rounds; nothing
holds ours back. Until a split, and so with `eps1=0`, it is FedAvg to the bit (dropout draws others).
Reference: Sattler, Mueller and Samek, Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization
under Privacy Constraints, IEEE TNNLS 2020.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from heterophony import (
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
from heterophony.parts import Cohort, Training, answers, bipartition, cross_entropy, moving

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))


class CFL(Method):
    """FedAvg in clusters: one that is at rest while its members pull apart is split by how their updates point."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("clusters", "splits", "waiting")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "cluster"
    unused = ("local.initial",)

    eps1: float = 0.4  # a cluster is at rest when its mean update is shorter
    eps2: float = 1.6  # and parts if a member's own is longer
    gamma: float = 0.0  # how unlike the parts must be, from 0 (anything) to 1 (never)
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.eps1 >= 0 or not self.eps2 >= 0 or not 0 <= self.gamma <= 1:
            given = f"{self.eps1}, {self.eps2} and {self.gamma}"
            raise ValueError(f"eps1 and eps2 are lengths >= 0 and gamma is in [0, 1], got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        cohort, sends = self.cohort.draw(server), []
        clusters, splits, waiting = known(server)
        groups = [(set(cluster["members"]), cluster["weights"]) for cluster in clusters]
        groups += [({c for c, at in waiting.items() if at == i}, split["weights"]) for i, split in enumerate(splits)]
        for own, weights in groups:
            if asked := [client for client in cohort if client in own]:
                sends.append(GLOBAL(asked, weights=weights))
        return sends

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield Mark("cluster")
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights(), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        clusters, splits, waiting = known(server)
        for i, cluster in enumerate(list(clusters)):
            own, start = set(cluster["members"]), cluster["weights"]
            heard = [m for m in mail if m.sender in own]
            parts = (yield from self.part(server, i, start, heard)) if len(heard) > 1 else [heard]
            merged = [self.cohort.mean(part) if part else start for part in parts]
            cluster["weights"] = merged[0]
            if len(parts) == 2:
                kept, new = ([m.sender for m in part] for part in parts)
                waiting |= dict.fromkeys([c for c in cluster["members"] if c not in {*kept, *new}], len(splits))
                way = bipartition.between(merged[0], merged[1], start, parameters(server))
                splits.append({"of": i, "new": len(clusters), "weights": start, "way": way})
                cluster["members"] = kept
                clusters.append({"members": new, "weights": merged[1]})
        for m in mail:
            if m.sender in waiting:
                place(m, clusters, splits, waiting)
        server.vars.update(clusters=clusters, splits=splits, waiting=waiting)
        for i, cluster in reversed([*enumerate(clusters)]):  # in the end the server holds the first cluster's model
            server.load(cluster["weights"])
            yield Note(f"cluster-{i}.size", len(cluster["members"]))
            yield Mark(f"cluster-{i}")
        server.round += 1

    def part(self, server: Node, i: int, start: Named, heard: list[Message]) -> Generator[Note, None, list[Any]]:
        """Those who were heard as one group, or as two."""
        names, updates = parameters(server), [m.weights for m in heard]
        rest = bipartition.length(self.cohort.mean(heard), start, names)
        longest = max(bipartition.length(update, start, names) for update in updates)
        yield Note(f"cluster-{i}.mean-update", rest)
        yield Note(f"cluster-{i}.longest-update", longest)
        if rest < self.eps1 and longest > self.eps2:
            alike = bipartition.cosines(
                bipartition.products(updates, start, names)
            )  # of all pairs, so only where it is needed
            one, other = bipartition.bipartition(alike.tolist())
            if float(((1 - alike[one][:, other].max()) / 2).sqrt()) > self.gamma:
                return [[heard[k] for k in one], [heard[k] for k in other]]
        return [heard]


def known(server: Node) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    """The clusters, the splits that they come from, and who waits at which: whoever is new, at the first."""
    clusters = [dict(cluster) for cluster in server.vars.get("clusters", ())]
    if not clusters:
        return [{"members": list(server.children), "weights": dict(server.weights())}], [], {}
    splits, waiting = list(server.vars["splits"]), dict(server.vars["waiting"])
    placed = {*waiting, *(client for cluster in clusters for client in cluster["members"])}
    new = [client for client in server.children if client not in placed]
    if splits:
        return clusters, splits, waiting | dict.fromkeys(new, 0)
    clusters[0]["members"] = [*clusters[0]["members"], *new]
    return clusters, splits, waiting


def place(
    update: Message, clusters: list[dict[str, Any]], splits: list[dict[str, Any]], waiting: dict[str, int]
) -> None:
    """Whoever waits at a split goes the way of the part that its update is more like, down to a cluster."""
    at = waiting.pop(update.sender)
    split = splits[at]
    home = split["new"] if bipartition.along(update.weights, split["weights"], split["way"]) > 0 else split["of"]
    later = [i for i in range(at + 1, len(splits)) if splits[i]["of"] == home]
    if later:
        waiting[update.sender] = later[0]
    else:
        clusters[home]["members"] = [*clusters[home]["members"], update.sender]


def parameters(server: Node) -> list[str]:
    """What has a direction: BatchNorm's statistics have none."""
    steps = moving(server)
    return [name for name in server.weights() if name in steps]
