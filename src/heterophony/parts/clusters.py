"""Who has which model, where a server's clients part in clusters, again and again (CFL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from heterophony.kernel.message import Message
from heterophony.kernel.node import Node
from heterophony.kernel.work import Named
from heterophony.parts import bipartition


@dataclass(frozen=True)
class Cluster:
    """Clients that have one model."""

    members: list[str]
    weights: Named


@dataclass(frozen=True)
class Parting:
    """Where a cluster parted: which cluster, which is the new one, its model before, and the way that tells them apart.

    An update along the way belongs to the new cluster, any other to the old one.
    """

    of: int
    new: int
    weights: Named
    way: Named


@dataclass
class Clusters:
    """The clusters, the splits that they come from, and who waits at which split."""

    clusters: list[Cluster]
    splits: list[Parting] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, server: Node) -> Clusters:
        """Return what the server keeps; whoever is new waits at the first split, or is in the only cluster."""
        kept = server.vars
        if not kept.get("clusters"):
            return cls([Cluster(list(server.children), dict(server.weights()))])
        known = cls(
            [Cluster(**plain) for plain in kept["clusters"]],
            [Parting(**plain) for plain in kept["splits"]],
            dict(kept["waiting"]),
        )
        placed = set(known.waiting)
        for cluster in known.clusters:
            placed.update(cluster.members)
        new = [client for client in server.children if client not in placed]
        if known.splits:
            known.waiting |= dict.fromkeys(new, 0)
        else:
            known.join(0, new)
        return known

    def keep(self, server: Node) -> None:
        """Write it into the server's variables, as plain values: `of` reads them again."""
        server.vars.update(
            clusters=[dict(vars(cluster)) for cluster in self.clusters],
            splits=[dict(vars(split)) for split in self.splits],
            waiting=self.waiting,
        )

    def models(self) -> list[tuple[list[str], Named]]:
        """Return who is sent which model: members that of their cluster, others that of the split they wait at."""
        sent = [(cluster.members, cluster.weights) for cluster in self.clusters]
        for i, split in enumerate(self.splits):
            waiting = [client for client, at in self.waiting.items() if at == i]
            sent.append((waiting, split.weights))
        return sent

    def move(self, cluster: int, weights: Named) -> None:
        """Give a cluster another model."""
        self.clusters[cluster] = replace(self.clusters[cluster], weights=weights)

    def join(self, cluster: int, clients: list[str]) -> None:
        """Add clients to a cluster."""
        known = self.clusters[cluster]
        self.clusters[cluster] = replace(known, members=[*known.members, *clients])

    def split(self, i: int, parts: Sequence[Sequence[Message]], means: Sequence[Named], names: list[str]) -> None:
        """Part a cluster in two; those of its members that were not heard now wait at this split."""
        whole = self.clusters[i]
        one, other = ([m.sender for m in part] for part in parts)
        heard = {*one, *other}
        unheard = [client for client in whole.members if client not in heard]
        self.waiting |= dict.fromkeys(unheard, len(self.splits))
        way = bipartition.between(means[0], means[1], whole.weights, names)
        self.splits.append(Parting(i, len(self.clusters), whole.weights, way))
        self.clusters[i] = Cluster(one, means[0])
        self.clusters.append(Cluster(other, means[1]))

    def place(self, update: Message) -> None:
        """Send whoever waits at a split the way that its update points, to the next split or into a cluster."""
        at = self.waiting.pop(update.sender)
        split = self.splits[at]
        home = split.new if bipartition.along(update.weights, split.weights, split.way) > 0 else split.of
        later = [i for i in range(at + 1, len(self.splits)) if self.splits[i].of == home]
        if later:
            self.waiting[update.sender] = later[0]
        else:
            self.join(home, [update.sender])
