"""Cronus: predictions on public rows are averaged by a robust mean, and label these rows for everyone's training.

Leaves a client: its softmax outputs on public rows that everyone knows by seed. Leaves the server: their robust mean.
No weights, no labels; the public rows need none.
Equations: the paper's two phases. `local.initial` epochs on private data alone; then in each round predictions go to
the server, which answers with their robust mean, and each client trains on one set of rows: its private ones with their
labels and the public ones with the mean as soft labels, by cross-entropy. The mean is that of Diakonikolas et al. for
bounded second moments, on which the paper builds: `filtered` of parts/aggregate.py. That it is applied to each public
row on its own is our reading.
Deviations: the filter needs sigma, a bound on how far honest predictions spread in any direction; its value is ours, as
are the initial epochs (probabilities never spread so far that sigma = 1 would filter). Where the filter's draw would
leave nobody, it is drawn among those that leave somebody, and two who disagree are averaged: there are few participants
here. The plain mean, the median and the trimmed mean are options. Predictions are made in evaluation mode.
References: Chang, Shejwalkar, Shokri and Houmansadr, Cronus: Robust and Heterogeneous Collaborative Learning with
Black-Box Knowledge Transfer, 2019; Diakonikolas et al., Being Robust (in High Dimensions) Can Be Practical, ICML 2017.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    DataError,
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
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers, combine, cross_entropy, filtered, soft_ce

ASK = Kind("ask", to="children")
PREDICTIONS = Kind("predictions", to="parent", probabilities=Probabilities("public", "rows.sample"))
LABELS = Kind("labels", to="children", probabilities=Probabilities("public", "rows.sample"))


class Cronus(Method):
    """Different networks label public data by a robust mean, and train on it together with their own data."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, LABELS)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    unused = ("cohort.weighted",)
    public = True

    average: Literal["filter", "mean", "median", "trimmed"] = "filter"
    sigma: float = 0.1  # of the filter: honest predictions have no standard deviation beyond it
    rows: PublicRows = PublicRows()
    local: Training = Training(initial=5)
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sigma > 0:
            raise ValueError(f"sigma is a number > 0, got {self.sigma}")
        if self.local.data != "train":
            raise ValueError(f"public rows join with labels of their own: local.data is train, not {self.local.data}")

    def needs(self) -> list[Need]:
        return [*super().needs(), NoStream("trains on private and public rows together")]

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def predict(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.first(client, cross_entropy)
        logits = yield self.rows.outputs(client)
        return PREDICTIONS(probabilities=logits.softmax(-1))

    @on(answers(PREDICTIONS), role="server")
    def aggregate(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            spoken = [m.probabilities for m in mail]
            if self.average == "filter":
                labels = filtered(spoken, self.sigma, server.rng("filter"))
            else:
                labels = combine(spoken, self.average)
            total = labels.sum(-1, keepdim=True)  # medians of probabilities need not sum to one
            labels = torch.where(total > 0, labels / total, 1 / labels.shape[-1])
            yield LABELS([m.sender for m in mail], probabilities=labels)
        server.round += 1

    @on(Each(LABELS), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        if "all" not in client.data:
            raise DataError("private and public rows are trained on together, which a stream does not allow")
        own, labels = client.data["train"].y, mail.probabilities.float()
        chosen = self.rows.of(client)
        rows = None if chosen is None else torch.cat([torch.arange(len(own)), len(own) + chosen])
        extra = {"labels": torch.cat([F.one_hot(own, labels.shape[-1]).float(), labels])}
        yield self.local.fit("model", self.labelled, data="all", rows=rows, extra=extra)
        yield Mark("personalised")

    def labelled(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        return {"model": {"ce": soft_ce(batch.labels, nets["model"](batch.x))}}
