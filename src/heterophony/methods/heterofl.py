"""HeteroFL: each client trains as wide a slice of the server's network as it can hold.

Sent by a client: the weights of its slice after local training, from how many examples they are, and, with `masking`,
which labels it has. With `static` and a network that has BatchNorm, clients that hold the whole also send the means and
variances of their rows' values in it.
Sent by the server: to each client its slice of the weights. With `static`, once more the merged weights, to those who
hold the whole.

Paper: Diao, Ding and Tarokh, HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients, ICLR 2021. Eqs. 1 to 3: a slice has the first units of each layer, and an entry is averaged over those who have
it. Scaler: inner layers of a slice divide by its width. Masked cross-entropy: outputs of labels that a client does not
have are zero, and their rows are averaged over those who have the label. Static BatchNorm: batches are standardised by
themselves in training, and statistics are taken afterwards. With everyone at width 1 and `scaler`, `masking` and
`static` off, it is FedAvg to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from heterophony import (
    Capacity,
    Data,
    DataError,
    Deviation,
    Each,
    Every,
    Inbox,
    Kind,
    Labels,
    Loss,
    Mark,
    Message,
    Method,
    Need,
    NetworksByRole,
    Node,
    Round,
    Scalar,
    Send,
    Serves,
    Slice,
    Sliced,
    Steps,
    Weights,
    on,
)
from heterophony.parts import (
    Cohort,
    Narrow,
    Nets,
    Places,
    SliceCut,
    Training,
    answers,
    by_capacity,
    ce,
    mean_by_coordinate,
    output_rows,
    pooled_statistics,
    put_statistics,
    rows_of,
    running_statistics,
    taken,
    taking_statistics,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Sliced("model"), labels=Labels, examples=Scalar(low=0))
MEASURE = Kind("measure", to="children", weights=Weights("model"))
STATISTICS = Kind("statistics", to="parent", statistics=Sliced("model", statistics=True), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "scaler",
        "a slice divides in evaluation too",
        "The paper evaluates the whole network only, which has nothing to divide. A slice whose layers were trained "
        "with divided values gives others without.",
    ),
    Deviation(
        "static BatchNorm",
        "Means and variances are taken after every merge, by the clients that hold the whole, each on its own rows. "
        "The server pools them. Clients that hold less take those of their own slices before they train, for `slice`.",
        "The authors' code puts all clients' rows through the global network once, after the last round. A client that "
        "holds half of it cannot do that.",
    ),
    Deviation(
        "widths",
        "are given, one for each client",
        "the paper also draws them anew in each round",
    ),
)


def masked(nets: Nets, batch: Data) -> Tensor:
    """Return the cross-entropy in which outputs of labels that a client does not have count as zero."""
    return ce(nets["model"](batch.x).masked_fill(~batch.seen, 0.0), batch.y)


class HeteroFL(Method):
    """Each client trains as wide a slice as it can hold; an entry is averaged over those who have it."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE, MEASURE, STATISTICS)
    models = {"server": {"model": Slice(Narrow())}, "client": {"model": Slice(Narrow())}}
    headline = "global"
    unused = ("cohort.combine",)

    cut: SliceCut = Narrow(scaler=True)
    rolling: Annotated[bool, "in each round slices begin one unit further on, round about"] = False
    masking: Annotated[bool, "outputs of labels that a client does not have are left out, and not averaged"] = True
    static: Annotated[bool, "BatchNorm's statistics do not travel with weights; they are taken after each merge"] = True
    cohort: Cohort = Cohort(weighted=False)
    local: Training = Training()
    loss: Loss = task_loss

    def networks(self) -> NetworksByRole:
        own = Slice(self.cut, buffers="private" if self.static else None)
        return {"server": {"model": own}, "client": {"model": own}}

    def needs(self) -> list[Need]:
        return [*super().needs(), *([Serves(("classification",))] if self.masking else [])]

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        self.check(server)
        whole = server.weights()
        groups = by_capacity(server, self.cohort.draw(server))
        return [GLOBAL(to, weights=taken(whole, self.places(server, own))) for own, to in groups.items()]

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        if client.capacity(client.id) != client.capacity(mail.sender):  # else it is the server's network
            if self.static and running_statistics(client):
                yield taking_statistics(self.local)
            yield Mark("slice")
        data = client.data[self.local.data]
        labels, loss, more = torch.empty(0, dtype=torch.int64), self.loss, {}
        if self.masking:
            labels, loss = torch.unique(data.y), masked
            seen = torch.zeros(data.classes or 0, dtype=torch.bool).index_fill(0, labels, True)
            more = {"extra": {"seen": seen.expand(len(data), -1)}}
        yield from self.local.before_first_round(client, loss, **more)
        yield self.local.fit("model", loss, **more)
        return UPDATE(weights=client.weights(), labels=labels, examples=len(data))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            places = {own: self.places(server, own) for own in by_capacity(server, [m.sender for m in mail])}
            slices = [(m.weights, places[server.capacity(m.sender)]) for m in mail]
            if self.masking:
                rows = output_rows(server.models["model"])
                slices = [rows_of(*own, rows, m.labels) for own, m in zip(slices, mail, strict=True)]
            server.load(mean_by_coordinate(server.weights(), slices, self.cohort.shares(mail)))
        if self.static and running_statistics(server):
            return MEASURE(server.group(self.able(server), "able"), weights=server.weights())
        yield Mark("global")
        server.round += 1
        return []

    @on(Each(MEASURE), role="client")
    def measure(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield taking_statistics(self.local)
        return STATISTICS(statistics=running_statistics(client), examples=self.local.examples(client))

    @on(Every(STATISTICS, of="able", deadline="cohort.deadline"), role="server")
    def pool(self, server: Node, mail: Inbox) -> Steps:
        counts = [m.examples for m in mail]
        if any(counts):
            put_statistics(server, pooled_statistics([m.statistics for m in mail], counts))
        yield Mark("global")
        server.round += 1

    def places(self, server: Node, own: Capacity) -> Mapping[str, Places]:
        """Return where the slice of a client of this capacity lies in this round."""
        offset = server.round if self.rolling else 0
        return self.cut.places(server.models["model"], own, server.capacity(server.id), offset)

    def able(self, server: Node) -> list[str]:
        """Return the clients that hold the whole."""
        able, names = [], server.weights().keys()
        for own, clients in by_capacity(server, server.children).items():
            places = self.places(server, own)
            if names <= places.keys() and not any(entry is not None for name in names for entry in places[name]):
                able += clients
        return able

    def check(self, server: Node) -> None:
        """Raise where BatchNorm's statistics would be averaged between slices, or nobody could take them."""
        able, found = self.able(server), running_statistics(server)
        if self.static and found and not able:
            raise DataError("nobody holds the whole network, so nobody can take BatchNorm's statistics: name a smaller")
        travel = found.keys() & server.weights().keys()
        places = [self.places(server, own) for own in by_capacity(server, server.children)] if travel else []
        if any(entry is not None for own in places for name in travel & own.keys() for entry in own[name]):
            raise DataError("BatchNorm's statistics of slices are no parts of those of the whole: set static=true")
