"""FedRE: clients with different bodies share one head, which the server trains on one random mixture of each client's.

Sent by a client: one row of features, a mixture of its class means by shares drawn anew in each round, and these
shares. No rows, no weights, no mean of a class by itself.
Sent by the server: the head that it has trained on these mixtures.

Paper: Yao et al., FedRE: A Representation Entanglement Framework for Model-Heterogeneous Federated Learning, CVPR 2026.
Its algorithm. In each round clients put the global head in the place of theirs, and train the whole network by
cross-entropy. A client draws a number between 0 and 1 for each class that it has, divides them by their sum, and mixes
its class means and the labels by these. The server's loss of a mixture is the sum over classes of share times
cross-entropy.
"""

from __future__ import annotations

from typing import Annotated

import torch

from heterophony import (
    Deviation,
    Each,
    Features,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    PerClass,
    Predict,
    Probabilities,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    ClassMeans,
    Cohort,
    Training,
    answers,
    biased_width,
    by_label,
    cross_entropy,
    of_one_shape,
    pooled,
    replaced,
    taught_head,
)

GLOBAL = Kind("global", to="children", head=PerClass)
MIXTURE = Kind("mixture", to="parent", features=Features(rows="shares"), shares=Probabilities)

DEVIATIONS = (
    Deviation(
        "server's training",
        "as in fedgh: from zero, 100 passes (`head_epochs`) with a step of rate 0.01 (`head_lr`) for each mixture",
        "The authors' code takes one pass in batches of mixtures, from a client's head. Our rounds are fewer.",
    ),
    Deviation("first round", "clients train the heads that they have", "as in fedgh"),
    Deviation("optimiser", "a client keeps its own from round to round", "as in fedgh"),
    Deviation("width", "as in fedgh: `width` averages features in groups of neighbours; off unless set", "as there"),
    Deviation("what does not fit", "is left out, or not taken, and noted", "as in fedgh"),
)


class FedRE(Method):
    """Different bodies under a common head, which the server trains on one random mixture of class means a client."""

    roles = ("server", "client")
    kinds = (GLOBAL, MIXTURE)
    memory = ("head", "shapes", "warned")
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted", "cohort.combine")

    head_epochs: Annotated[int, "how often the server goes over the mixtures that clients have sent"] = 100
    head_lr: Annotated[float, "rate of the server's steps, one for each mixture"] = 0.01
    width: Annotated[int | None, "features are averaged in so many groups; none: they are taken as they are"] = None
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
        yield from self.local.before_first_round(client, cross_entropy)
        yield from replaced(client, mail.head, width, "FedRE")
        yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        features = yield Predict("model.body", self.local.data)
        means, counts = by_label(pooled(features, width), client.data[self.local.data])
        drawn = torch.rand(len(counts), generator=client.rng("mixture")) * (counts > 0)
        shares = (drawn / drawn.sum().clamp_min(1e-12)).unsqueeze(0)[: int(bool(counts.any()))]  # no rows: no mixture
        return MIXTURE(features=shares @ means, shares=shares)

    @on(answers(MIXTURE), role="server")
    def teach(self, server: Node, mail: Inbox) -> None:
        told = {m.sender: m for m in mail if len(m.shares) == 1}
        tables = {name: ClassMeans(m.shares.T @ m.features, m.shares[0]) for name, m in told.items()}
        fitting = of_one_shape(server, tables)  # of as many classes and features as most have
        if fitting:
            classes, width = next(iter(fitting.values())).means.shape
            head = server.vars.get("head")
            if head is None or head.shape != (classes, width + 1):
                head = torch.zeros(classes, width + 1)
            pairs = [(told[name].features[0], told[name].shares[0]) for name in fitting]
            server.vars["head"] = taught_head(head, pairs, self.head_epochs, self.head_lr)
        server.round += 1

    def wide(self, client: Node) -> int:
        """Return how many features a mixture of this client has."""
        return biased_width(client.models["model"], "FedRE", self.width)
