"""Cronus: clients label public rows by a robust mean of their predictions, and train on them beside their own data.

Sent by a client: its softmax outputs on public rows. Everyone knows by the seed which rows these are. No weights, no
labels.
Sent by the server: a request to predict, then the robust mean of the answers. The public rows need no labels.

Paper: Chang, Shejwalkar, Shokri and Houmansadr, Cronus: Robust and Heterogeneous Collaborative Learning with Black-Box
Knowledge Transfer, 2019. Its two phases: a client first trains `local.initial` epochs on private data alone. Then in
each round clients send predictions, and the server answers with their robust mean. Each client trains by cross-entropy
on one set of rows: its private rows with their labels, and the public rows with the mean as soft labels. The robust
mean is the one for bounded second moments, on which the paper builds (`filtered` of parts/robust.py): Diakonikolas
et al., Being Robust (in High Dimensions) Can Be Practical, ICML 2017.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    DataError,
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Need,
    Node,
    NoStream,
    Own,
    Probabilities,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    Cohort,
    Combine,
    Nets,
    PublicRows,
    Training,
    answers,
    as_probabilities,
    cross_entropy,
    soft_ce,
)

ASK = Kind("ask", to="children")
PREDICTIONS = Kind("predictions", to="parent", probabilities=Probabilities("public", "rows.sample"))
LABELS = Kind("labels", to="children", probabilities=Probabilities("public", "rows.sample"))
FILTER = Combine("filter")

DEVIATIONS = (
    Deviation(
        "robust mean",
        "The filter for bounded second moments is applied to each public row on its own, with `sigma` = 0.1. Sigma "
        "bounds how far honest predictions spread in any direction.",
        "Row by row is our reading of the paper. Its scale is not known to us. Probabilities never spread so far "
        "that a sigma of 1 would filter anything.",
    ),
    Deviation(
        "few participants",
        "a draw that would leave nobody is made among those that leave somebody; two clients who disagree are averaged",
        "the filter is made for many points",
    ),
    Deviation(
        "averages",
        "`cohort.combine` has the plain mean and other rules; medians are made to sum to one",
        "for comparison",
    ),
    Deviation("initial epochs", "5 unless set", "the value is ours"),
    Deviation("predictions", "made in evaluation mode", "as every prediction here"),
)


class Cronus(Method):
    """Different networks label public data by a robust mean, and train on it together with their own data."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, LABELS)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted",)
    public = True

    rows: PublicRows = PublicRows()
    local: Training = Training(initial=5)
    cohort: Cohort = Cohort()  # without a rule of its own, the filter

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local.data != "train":
            raise ValueError(
                f"cronus adds public rows to the private ones itself: local.data must be train, got {self.local.data}"
            )

    def needs(self) -> list[Need]:
        return [*super().needs(), NoStream("trains on private and public rows together")]

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def predict(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.before_first_round(client, cross_entropy)
        logits = yield self.rows.outputs(client)
        return PREDICTIONS(probabilities=logits.softmax(-1))

    @on(answers(PREDICTIONS), role="server")
    def aggregate(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            labels = as_probabilities(self.cohort.tensor(server, mail, "probabilities", FILTER))
            yield LABELS([m.sender for m in mail], probabilities=labels)
        server.round += 1

    @on(Each(LABELS), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        if "all" not in client.data:
            raise DataError("private and public rows are trained on together, which a stream does not allow")
        private = client.data["train"].y
        soft = mail.probabilities.float()
        hard = F.one_hot(private, soft.shape[-1]).float()
        labels = torch.cat([hard, soft])
        rows, public = None, self.rows.of(client)
        if public is not None:  # in the view "all", public rows stand behind the private ones
            rows = torch.cat([torch.arange(len(private)), len(private) + public])
        yield self.local.fit("model", self.labelled, data="all", rows=rows, extra={"labels": labels})
        yield Mark("personalised")

    def labelled(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the cross-entropy with each row's label: one-hot for a private row, soft for a public one."""
        return {"model": {"ce": soft_ce(batch.labels, nets["model"](batch.x))}}
