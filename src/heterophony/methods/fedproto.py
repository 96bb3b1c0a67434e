"""FedProto: networks agree on the mean features (the prototype) of each class.

Leaves a client: for each class, the mean of its features on its private rows of that class, and how many rows that is
(with `weighted=False`, whether there are any). Leaves the server: their means over the clients, and which classes there
are. No weights, no rows, no public data.
Equations: Algorithm 1; prototypes are Eq. 3, the server's mean Eq. 6, the loss Eq. 7. Features are what a network's
`body` gives and its `head` reads, so that the loss asks for both parts and goes through the network once. The distance
of Eq. 8 is the authors' code's: the squared one of each row's features from the prototype of its own label, mean over
rows and features; rows whose class has no prototype yet add nothing.
Deviations: Eq. 6 divides by the number of clients once more than a mean by examples does; we do not (`weighted=False`
is the code's plain mean). A network is evaluated with its own head, not by the nearest prototype (Eq. 4). A class that
nobody in a round has keeps its prototype. With `width`, features are averaged in so many groups of neighbours, so that
networks of different widths can take part; the paper's have one width. Tables of another shape than most are left out;
a client whom one reaches that does not fit trains as if nothing were known, and says so. Prototypes are of the network
after its local update, in evaluation mode; the code gathers them from the batches while it changes.
Reference: Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from heterophony import (
    Counts,
    Data,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    PerClass,
    Predict,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    Cohort,
    Nets,
    Table,
    Training,
    agreed,
    answers,
    by_label,
    ce,
    cross_entropy,
    fitting,
    merged,
    misfit,
    pooled,
    renewed,
    spread,
    unknown,
    width_of,
)

GLOBAL = Kind("global", to="children", means=PerClass(rows="held"), held=Counts)
PROTOTYPES = Kind("prototypes", to="parent", means=PerClass(rows="counts"), counts=Counts)
Combine = Callable[[Node, Sequence[Table]], Table]


def averaged(server: Node, tables: Sequence[Table]) -> Table:
    """Eq. 6."""
    return merged(tables)


class FedProto(Method):
    """Different networks whose features of a class are pulled together; only the means of features travel."""

    roles = ("server", "client")
    kinds = (GLOBAL, PROTOTYPES)
    memory = ("prototypes", "shapes", "trained", "warned")
    models = {"client": {"model": Own()}}
    headline = "personalised"

    pull: float = 1.0  # lambda of Eq. 7
    width: int | None = None  # features are averaged in so many groups; none: taken as they are
    cohort: Cohort = Cohort()
    local: Training = Training()
    server: Combine = averaged  # one table of all

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pull >= 0 or (self.width is not None and self.width < 1):
            raise ValueError(f"pull is a weight >= 0 and width a number >= 1, got {self.pull} and {self.width}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        known = Table(*server.vars.get("prototypes", unknown()))
        return GLOBAL(self.cohort.draw(server), means=known.means, held=known.counts.clamp(max=1))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        data, width = client.data[self.local.data], self.wide(client)
        yield from self.local.first(client, cross_entropy)
        prototypes = Table(mail.means, mail.held)
        if fitting(prototypes, data, width):
            parts = ("model.body", "model.head")
            yield self.local.fit("model", self.near, extra=spread(prototypes, data.y), parts=parts, keep="own")
        else:
            if len(mail.means):
                yield misfit(client, "prototypes", mail.means.shape, (data.classes, width))
            yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        features = yield Predict("model.body", self.local.data)
        own = by_label(pooled(features, width), data)
        return PROTOTYPES(means=own.means, counts=own.counts if self.cohort.weighted else own.counts.clamp(max=1))

    @on(answers(PROTOTYPES), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        tables = {m.sender: Table(m.means, m.counts if self.cohort.weighted else m.counts.clamp(max=1)) for m in mail}
        if together := agreed(server, tables):
            found = self.server(server, together)
            before = Table(*server.vars.get("prototypes", unknown()))
            server.vars["prototypes"] = list(renewed(before, found))
        server.round += 1

    def near(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Eq. 7; `mean` is the prototype of the row's label."""
        features = nets["model.body"](batch.x)
        logits = nets["model.head"](features)
        apart = (pooled(features, batch.mean.shape[-1]) - batch.mean).pow(2).mean(-1)
        return {"model": {"ce": ce(logits, batch.y), "proto": self.pull * (batch.heard * apart).mean()}}

    def wide(self, client: Node) -> int:
        """How many numbers a prototype of this client has."""
        return width_of(client.models["model"], "FedProto", self.width)
