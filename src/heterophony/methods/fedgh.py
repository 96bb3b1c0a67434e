"""FedGH: different bodies, one head, which the server trains on the mean features of each class.

Leaves a client: for each class, the mean of its features on its private rows of that class, and which classes it has.
Leaves the server: the head that it has trained on them. No rows, no public data, no weights of a client.
Equations: The algorithm FedGH. In each round the clients put the global head in the place of theirs, train the whole
network by cross-entropy and send their local averaged representations; the server takes a step of SGD on the
cross-entropy of the global head for each pair of a representation and its class, client by client and class by class.
Deviations: the head begins at zero, not at random (its loss is convex); before a first merge clients have nothing to
put in, and train their own. The server's rate is ours, and it takes many small passes (`head_epochs`): both were chosen
on rows of two settings that are neither trained on nor tested on (`benchmarks/defaults.py`). Gradients there are
shortened to 50 as in the authors' code, which does so at the clients too. In that code the optimiser that steps for the
server is that of a client's network, so that the global head never moves; ours is trained, in no virtual time. A client
keeps its optimiser from round to round, as all private networks here. Representations are of the network after its
local update, in evaluation mode. With `width`, features are averaged in so many groups of neighbours, and a head for as
many is written out for each network's own features: the same outputs, for networks of different widths; the paper's
have one. Tables of another shape than most are left out; a client whom a head reaches that does not fit keeps its own,
and says so.
Reference: Yi, Wang, Liu, Shi and Yu, FedGH: Heterogeneous Federated Learning with Generalized Global Header, ACM MM
2023.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from heterophony import (
    Counts,
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
    Table,
    Training,
    agreed,
    answers,
    biased_width,
    by_label,
    cross_entropy,
    pooled,
    replaced,
)

LONGEST = 50.0  # of the server's gradients: a liar's means may be huge

# A row a class: what it makes of each feature, and its bias.
GLOBAL = Kind("global", to="children", head=PerClass)
MEANS = Kind("means", to="parent", means=PerClass(rows="held"), held=Counts)


class FedGH(Method):
    """Different bodies under a common head, which the server trains on mean features of each class."""

    roles = ("server", "client")
    kinds = (GLOBAL, MEANS)
    memory = ("head", "shapes", "warned")
    models = {"client": {"model": Own()}}
    headline = "personalised"
    unused = ("cohort.weighted",)

    head_epochs: int = 100  # of the server, over what the clients have sent
    head_lr: float = 0.01  # of its steps, one for each mean
    width: int | None = None  # features are averaged in so many groups; none: taken as they are
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_epochs < 1 or not self.head_lr > 0 or (self.width is not None and self.width < 1):
            given = f"{self.head_epochs}, {self.head_lr} and {self.width}"
            raise ValueError(f"head_epochs and width are numbers >= 1 and head_lr is a rate > 0, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), head=server.vars.get("head", torch.zeros(0, 0)))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round, width = mail.round, self.wide(client)
        yield from self.local.first(client, cross_entropy)
        yield from replaced(client, mail.head, width, "FedGH")
        yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        features = yield Predict("model.body", self.local.data)
        means, counts = by_label(pooled(features, width), client.data[self.local.data])
        return MEANS(means=means, held=counts.clamp(max=1))

    @on(answers(MEANS), role="server")
    def teach(self, server: Node, mail: Inbox) -> None:
        if tables := agreed(server, {m.sender: Table(m.means, m.held) for m in mail}):
            classes, width = tables[0].means.shape
            before = server.vars.get("head", torch.zeros(0, 0))
            before = before if before.shape == (classes, width + 1) else torch.zeros(classes, width + 1)
            server.vars["head"] = taught(before, tables, self.head_epochs, self.head_lr)
        server.round += 1

    def wide(self, client: Node) -> int:
        """How many numbers a representation of this client has."""
        return biased_width(client.models["model"], "FedGH", self.width)


def taught(head: Tensor, tables: Iterable[Table], epochs: int, lr: float) -> Tensor:
    """The head after a step of SGD for each mean that there is; the gradient of cross-entropy is written out."""
    head, one = head.double(), torch.ones(1, dtype=torch.float64)
    held = [(table.means.double(), int(label)) for table in tables for label in table.counts.nonzero()]
    pairs = [(torch.cat([means[label], one]), label) for means, label in held]
    for _ in range(epochs):
        for features, label in pairs:
            slope = (head @ features).softmax(0)
            slope[label] -= 1
            long = float(slope.norm() * features.norm())
            head = head.addr(slope, features, alpha=-lr * LONGEST / max(long, LONGEST))
    return head.float()
