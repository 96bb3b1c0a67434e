"""FedGH: clients with different bodies share one head, which the server trains on the mean features of each class.

Sent by a client: for each class, the mean of its features on its private rows of that class, and which classes it has.
No rows, no weights.
Sent by the server: the head that it has trained on these means.

Paper: Yi, Wang, Liu, Shi and Yu, FedGH: Heterogeneous Federated Learning with Generalized Global Header, ACM MM 2023.
The algorithm FedGH. In each round clients put the global head in the place of theirs, train the whole network by
cross-entropy and send their local averaged representations. For each of these, client by client and class by class,
the server takes a step of SGD on the cross-entropy of the global head.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Counts,
    Deviation,
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
    ClassMeans,
    Cohort,
    TaughtHead,
    Training,
    answers,
    by_label,
    cross_entropy,
    of_one_shape,
    pooled,
    replaced,
)

# The head as a table: for each class its weight for each feature, and its bias.
GLOBAL = Kind("global", to="children", head=PerClass)
MEANS = Kind("means", to="parent", means=PerClass(rows="held"), held=Counts)

DEVIATIONS = (
    Deviation(
        "server's training",
        "The head begins at zero. The server goes over the means 100 times (`head_epochs`), in order, with a step "
        "of rate 0.01 (`head_lr`) for each mean.",
        "The loss is convex, so the start need not be random. In the authors' code the server's optimiser moves a "
        "client's network, and the global head stands still. So no rate can be taken from there. Of four pairs of "
        "values these were the best on held-out rows of two settings (`benchmarks/defaults.py`).",
    ),
    Deviation(
        "first round",
        "clients train the heads that they have",
        "before the first merge there is no global head",
    ),
    Deviation(
        "long gradients",
        "the server's are shortened to a length of 50, the clients' are not",
        "the authors' code shortens both; clients train here as in all other methods",
    ),
    Deviation(
        "optimiser",
        "a client keeps its own from round to round",
        "as all private networks here; the authors' code begins it anew",
    ),
    Deviation(
        "representations",
        "of the network after its local update, in evaluation mode",
        "`Predict` is in evaluation mode everywhere",
    ),
    Deviation(
        "width",
        "`width` averages features in groups of neighbours. A head that reads the groups is written out for each "
        "network's own features, with the same outputs. It is off unless set.",
        "The paper's networks have features of one width. Those of our shipped mixtures differ.",
    ),
    Deviation(
        "what does not fit",
        "The server leaves out tables of another shape than most. A client that is sent a head of another shape "
        "keeps its own, and notes it.",
        "The paper's networks all fit. Here settings, or somebody who lies, may bring others.",
    ),
    Deviation(
        "virtual time",
        "the server's training takes none",
        "virtual time is that of work on networks (`Fit`, `Predict`)",
    ),
)


class FedGH(Method):
    """Different bodies under a common head, which the server trains on mean features of each class."""

    roles = ("server", "client")
    kinds = (GLOBAL, MEANS)
    memory = ("head", "shapes", "warned")
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted", "cohort.combine")

    taught: TaughtHead = TaughtHead()
    cohort: Cohort = Cohort()
    local: Training = Training()

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), head=self.taught.known(server))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round, width = mail.round, self.taught.read(client, "FedGH")
        yield from self.local.before_first_round(client, cross_entropy)
        yield from replaced(client, mail.head, width, "FedGH")
        yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        features = yield Predict("model.body", self.local.data)
        means, counts = by_label(pooled(features, width), client.data[self.local.data])
        return MEANS(means=means, held=counts.clamp(max=1))

    @on(answers(MEANS), role="server")
    def teach(self, server: Node, mail: Inbox) -> None:
        tables = of_one_shape(server, {m.sender: ClassMeans(m.means, m.held) for m in mail})
        self.taught.teach(server, with_labels(tables.values()))
        server.round += 1


def with_labels(tables: Iterable[ClassMeans]) -> list[tuple[Tensor, Tensor]]:
    """Return each mean that there is with its class as a one-hot row: table by table, class by class."""
    return [
        (table.means[label], F.one_hot(torch.tensor(label), len(table.means)))
        for table in tables
        for label in map(int, table.counts.nonzero())
    ]
