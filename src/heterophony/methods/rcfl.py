"""RCFL: participants with different networks and different labels learn what all of them say of public rows.

Leaves a client: its softmax outputs on public rows that everyone knows by seed, which labels it has, and its accuracy.
Leaves the server: the scores of all labels. No weights; public rows need no labels.
Equations: of its two updates, without numbers, as the full text was not at hand. The global update is label by label,
over those who have the label, with beta = 1 where one alone has it and beta = the participant's accuracy on labelled
public rows where several do; the local update joins the global scores of a participant's own labels with its own
scores, these weighted by alpha. With `alpha=0` it is the model distillation update of the sister paper.
Deviations: a label's sum is divided by its weights, and rows are made to sum to one, so that scores stay scores; if all
weights are zero, all count alike. The joined scores (global + alpha own) / (1 + alpha) are distilled into the network,
by cross-entropy, mean over the batch. The default of alpha, private rows for each public row, is ours. Networks have
outputs for all labels: those of labels that a participant has no rows of are masked in scores and in distillation, and
who has no rows at all learns all labels. Accuracy is on the round's public rows of one's own labels; where public data
have no labels it is 1 or, as an option, that on validation data. A round begins with scores and ends with local
training, so that the scores learnt are of the same round.
References: Gudur, Balaji and Perepu, Resource-Constrained Federated Learning with Heterogeneous Labels and Models, KDD
workshop on Artificial Intelligence of Things, 2020; Gudur and Perepu, Federated Learning with Heterogeneous Labels and
Models for Mobile Activity Monitoring, 2020.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
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
    Need,
    Node,
    Own,
    Predict,
    Probabilities,
    Round,
    Scalar,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    Cohort,
    Nets,
    PublicRows,
    Training,
    answers,
    confidence,
    counted,
    cross_entropy,
    needed_for,
)

ASK = Kind("ask", to="children")
SCORES = Kind(
    "scores", to="parent", scores=Probabilities("public", "rows.sample"), held=Counts, accuracy=Scalar(low=0, high=1)
)
GLOBAL = Kind("global", to="children", scores=Probabilities("public", "rows.sample"))


class RCFL(Method):
    """Networks and label sets may differ: scores of public data are averaged label by label, over those who know it."""

    roles = ("server", "client")
    kinds = (ASK, SCORES, GLOBAL)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    unused = ("cohort.weighted", "distil.initial")
    public = True

    alpha: float | None = None  # the weight of one's own scores beside the global ones; None: private / public rows
    confidence: Literal["public", "validation", "one"] = "public"  # what beta is a participant's accuracy on
    rows: PublicRows = PublicRows()
    distil: Training = Training()
    local: Training = Training()
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha is not None and not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha is a weight >= 0, or none, got {self.alpha}")

    def needs(self) -> list[Need]:
        return [*super().needs(), *needed_for(self.confidence)]

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def score(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        known = self.labels(client)
        yield from self.local.first(client, cross_entropy)
        asked = self.rows.outputs(client)
        logits = yield asked
        accuracy = yield from confidence(client, self.confidence, asked.rows, logits, any_of(known))
        return SCORES(scores=masked(logits, any_of(known)).softmax(-1), held=known.float(), accuracy=accuracy)

    @on(answers(SCORES), role="server")
    def update(self, server: Node, mail: Inbox) -> Steps:
        fit = [m for m in mail if len(m.held) == m.scores.shape[-1]]
        if fit and any(m.held.any() for m in fit):
            held = torch.stack([m.held > 0 for m in fit])
            agreed = label_by_label([m.scores for m in fit], held, [m.accuracy for m in fit])
            yield GLOBAL([m.sender for m in fit], scores=agreed)
        server.round += 1

    @on(Each(GLOBAL), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        rows, known = self.rows.of(client), any_of(self.labels(client))
        alpha = self.alpha
        if alpha is None:
            alpha = len(client.data[self.local.data]) / max(1, len(client.data["public"]))
        target = mail.scores.float() * known
        target = target / target.sum(-1, keepdim=True).clamp_min(torch.finfo(target.dtype).tiny)
        if alpha:
            own = masked((yield Predict("model", "public", rows)), known).softmax(-1)
            target = (target + alpha * own) / (1 + alpha)
        extra = {"target": target, "known": known.expand_as(target)}
        yield self.distil.fit("model", self.follow, data="public", rows=rows, extra=extra)
        yield Mark("distilled")
        yield self.local.fit("model", cross_entropy)
        yield Mark("personalised")

    def follow(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Cross-entropy with the joined scores, among the labels that one has."""
        said = masked(nets["model"](batch.x), batch.known).log_softmax(-1)
        return {"model": {"kd": -(batch.target * said).sum(-1).mean()}}

    def labels(self, client: Node) -> Tensor:
        """Which labels it has rows of."""
        return counted(client.data[self.local.data]) > 0


def label_by_label(scores: list[Tensor], held: Tensor, accuracy: list[float]) -> Tensor:
    """The global update: for each label, the mean over those who have it by their accuracy; rows that sum to one."""
    beta = held * torch.tensor(accuracy, dtype=torch.float64).unsqueeze(1)
    beta = torch.where(beta.sum(0) > 0, beta, held.double())
    shares = beta / beta.sum(0).clamp_min(torch.finfo(beta.dtype).tiny)
    joined = (shares.unsqueeze(1) * torch.stack([s.double() for s in scores])).sum(0)
    total = joined.sum(-1, keepdim=True)  # nothing, where somebody says that it lacks the labels that it votes for
    return torch.where(total > 0, joined / total, 1 / joined.shape[-1]).float()


def any_of(known: Tensor) -> Tensor:
    """The labels that one has; who has none goes by all."""
    return known | ~known.any()


def masked(logits: Tensor, known: Tensor) -> Tensor:
    """Logits with no chance for what is not known; finite, as nothing times infinity is no number."""
    return logits.masked_fill(~known, torch.finfo(logits.dtype).min)
