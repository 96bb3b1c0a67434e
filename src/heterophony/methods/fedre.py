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
    TaughtHead,
    Training,
    answers,
    by_label,
    cross_entropy,
    of_one_shape,
    pooled,
    replaced,
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

    taught: TaughtHead = TaughtHead()
    cohort: Cohort = Cohort()
    local: Training = Training()

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), head=self.taught.known(server))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round, width = mail.round, self.taught.read(client, "FedRE")
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
        sent = {m.sender: m for m in mail if len(m.shares) == 1}
        tables = {name: ClassMeans(m.shares.T @ m.features, m.shares[0]) for name, m in sent.items()}
        fitting = of_one_shape(server, tables)  # of as many classes and features as most have
        self.taught.teach(server, [(sent[name].features[0], sent[name].shares[0]) for name in fitting])
        server.round += 1
