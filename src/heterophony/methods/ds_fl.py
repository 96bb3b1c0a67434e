"""DS-FL: clients label public rows together; the mean label is sharpened before everyone learns it.

Sent by a client: its softmax outputs on public rows. Everyone knows by the seed which rows these are. No weights, no
labels.
Sent by the server: a request to begin, then the labels that it made of the mean of these outputs. The public rows need
no labels.

Paper: Itahara, Nishio, Koda, Morikura and Yamamoto, Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data, IEEE Transactions on Mobile Computing, 2021. A
round has the paper's steps in its order: update, prediction, aggregation, distillation. Entropy reduction aggregation
(ERA) is softmax(mean / T) with T = 0.1; the mean is of probabilities. Simple aggregation (SA) is the mean itself. The
clients and the server's own network learn it by cross-entropy with soft targets, mean over the batch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from heterophony import (
    Deviation,
    Each,
    Global,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    Probabilities,
    Round,
    Send,
    Steps,
    Sum,
    on,
    senders,
)
from heterophony.parts import Cohort, PublicRows, Training, answers, cross_entropy

ASK = Kind("ask", to="children")
PREDICTIONS = Kind("predictions", to="parent", probabilities=Probabilities("public", "rows.sample"))
LABELS = Kind("labels", to="children", probabilities=Probabilities("public", "rows.sample"))

DEVIATIONS = (
    Deviation(
        "networks",
        "may differ; each starts with weights of its own",
        "the paper trains one network everywhere; only outputs travel, so nothing asks for it",
    ),
    Deviation(
        "absent clients",
        "a client that misses the aggregation keeps its updated network, and goes on from it when it is asked again",
        "the paper's clients take part in every round",
    ),
    Deviation("predictions", "made in evaluation mode", "as every prediction here"),
    Deviation(
        "headline",
        "the clients' networks after distillation; the server's own is the product `global`",
        "networks differ here, and tables compare participants",
    ),
)


class DSFL(Method):
    """Different networks label public data together; the mean of their softmax outputs is sharpened and distilled."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, LABELS)
    models = {"server": {"model": Global()}, "client": {"model": Own()}}
    headline = "distilled"
    serves = ("classification",)
    unused = ("cohort.weighted", "distil.initial")
    public = True

    aggregation: Annotated[Literal["era", "sa"], "entropy reduction (sharpened mean), or the simple mean"] = "era"
    temperature: Annotated[float, "of ERA; below one it sharpens"] = 0.1
    global_model: Annotated[bool, "the server has a network of its own that learns the labels too"] = True
    rows: PublicRows = PublicRows()
    local: Training = Training()
    distil: Training = Training()
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise ValueError(f"temperature is a number > 0, got {self.temperature}")

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def update(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.before_first_round(client, cross_entropy)
        yield self.local.fit("model", cross_entropy)
        yield Mark("local")
        logits = yield self.rows.outputs(client)
        return PREDICTIONS(probabilities=logits.softmax(-1))

    def sums(self) -> Sum:
        return self.cohort.sum(PREDICTIONS, "probabilities")

    @on(answers(PREDICTIONS), role="server")
    def aggregate(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            labels = self.cohort.labels(server, mail)
            if self.aggregation == "era":
                labels = (labels / self.temperature).softmax(-1)
            yield LABELS(senders(mail), probabilities=labels)
            if self.global_model:
                yield self.rows.imitate(server, self.distil, labels)
                yield Mark("global")
        server.round += 1

    @on(Each(LABELS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        yield self.rows.imitate(client, self.distil, mail.probabilities.float())
        yield Mark("distilled")
