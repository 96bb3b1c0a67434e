"""RCFL: participants with different networks and different labels learn what all of them say of public rows.

Sent by a client: its softmax outputs on public rows that everyone knows by the seed, which labels it has, and its
accuracy. No weights; public rows need no labels.
Sent by the server: the scores of all labels on the same rows.

Papers: Gudur, Balaji and Perepu, Resource-Constrained Federated Learning with Heterogeneous Labels and Models, KDD
workshop on Artificial Intelligence of Things, 2020; Gudur and Perepu, Federated Learning with Heterogeneous Labels and
Models for Mobile Activity Monitoring, 2020. The full text was not at hand, so no equation is named. The global update
goes label by label, over those who have the label: beta is 1 where one alone has it, and the participant's accuracy on
labelled public rows where several do. The local update joins the global scores of a participant's own labels with its
own scores, weighted by alpha. With `alpha = 0` it is the model distillation update of the second paper.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from heterophony import (
    Counts,
    Data,
    Deviation,
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
    as_probabilities,
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

DEVIATIONS = (
    Deviation(
        "global update",
        "A label's sum is divided by its weights, and rows are made to sum to one. Where all weights are zero, all "
        "count alike.",
        "Scores stay scores, however many have a label.",
    ),
    Deviation(
        "local update",
        "The joined scores (global + alpha own) / (1 + alpha) are distilled by cross-entropy, mean over the batch. "
        "Unless set, alpha is private rows for each public row.",
        "What is joined are scores on public rows. A network must learn them to have them. The default is ours: we "
        "could not compare it with the paper's.",
    ),
    Deviation(
        "labels",
        "Those that a participant has rows of. A network's outputs for others are masked in scores and "
        "distillation. A participant without rows learns all labels.",
        "Networks here have an output for every label.",
    ),
    Deviation(
        "accuracy",
        "on the round's public rows of one's own labels; without labels 1, or that on validation data",
        "the paper's public data have labels",
    ),
    Deviation(
        "order",
        "scores, global update, distillation, local training",
        "what is learnt is of the same round",
    ),
)


class RCFL(Method):
    """Networks and labels may differ: each label's scores on public rows are averaged over those who have the label."""

    roles = ("server", "client")
    kinds = (ASK, SCORES, GLOBAL)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted", "distil.initial")
    public = True

    alpha: Annotated[
        float | None, "weight of the participant's own scores beside the global ones; none: private rows / public rows"
    ] = None
    confidence: Annotated[
        Literal["public", "validation", "one"], "rows that beta is a participant's accuracy on; one: beta is always 1"
    ] = "public"
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
        yield from self.local.before_first_round(client, cross_entropy)
        asked = self.rows.outputs(client)
        logits = yield asked
        accuracy = yield from confidence(client, self.confidence, asked.rows, logits, any_of(known))
        return SCORES(scores=masked(logits, any_of(known)).softmax(-1), held=known.float(), accuracy=accuracy)

    @on(answers(SCORES), role="server")
    def update(self, server: Node, mail: Inbox) -> Steps:
        fit = [m for m in mail if len(m.held) == m.scores.shape[-1]]
        if fit and any(m.held.any() for m in fit):
            held = torch.stack([m.held > 0 for m in fit])
            if self.cohort.rule(server).plain:
                agreed = label_by_label([m.scores for m in fit], held, [m.accuracy for m in fit])
            else:
                agreed = self.by_rule(server, fit, held)
            yield GLOBAL([m.sender for m in fit], scores=agreed)
        server.round += 1

    def by_rule(self, server: Node, fit: list[Message], held: Tensor) -> Tensor:
        """Return each label's scores as `cohort.combine` has them. Accuracies do not count: a liar may say any."""
        joined = torch.zeros_like(fit[0].scores)
        for label, has in enumerate(held.T.tolist()):
            have = [m for m, one in zip(fit, has, strict=True) if one]
            if have:
                joined[:, label] = self.cohort.of(server, have, [m.scores[:, label] for m in have])
        return as_probabilities(joined)

    @on(Each(GLOBAL), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        rows = self.rows.of(client)
        known = any_of(self.labels(client))
        alpha = self.alpha
        if alpha is None:
            alpha = self.local.examples(client) / max(1, len(client.data["public"]))
        target = mail.scores.float() * known
        target = target / target.sum(-1, keepdim=True).clamp_min(torch.finfo(target.dtype).tiny)
        if alpha:
            logits = yield Predict("model", "public", rows)
            own = masked(logits, known).softmax(-1)
            target = (target + alpha * own) / (1 + alpha)
        extra = {"target": target, "known": known.expand_as(target)}
        yield self.distil.fit("model", self.follow, data="public", rows=rows, extra=extra)
        yield Mark("distilled")
        yield self.local.fit("model", cross_entropy)
        yield Mark("personalised")

    def follow(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the cross-entropy with the joined scores, over the labels that the participant has."""
        said = masked(nets["model"](batch.x), batch.known).log_softmax(-1)
        return {"model": {"kd": -(batch.target * said).sum(-1).mean()}}

    def labels(self, client: Node) -> Tensor:
        """Return for each label whether the client has rows of it."""
        return counted(client.data[self.local.data]) > 0


def label_by_label(scores: list[Tensor], held: Tensor, accuracy: list[float]) -> Tensor:
    """Return the global update: each label's mean over those who have it, weighted by accuracy. Rows sum to one."""
    beta = held * torch.tensor(accuracy, dtype=torch.float64).unsqueeze(1)
    beta = torch.where(beta.sum(0) > 0, beta, held.double())
    shares = beta / beta.sum(0).clamp_min(torch.finfo(beta.dtype).tiny)
    joined = (shares.unsqueeze(1) * torch.stack([s.double() for s in scores])).sum(0)
    total = joined.sum(-1, keepdim=True)  # zero where the scores are of labels that their senders say they lack
    return torch.where(total > 0, joined / total, 1 / joined.shape[-1]).float()


def any_of(known: Tensor) -> Tensor:
    """Return the labels that a participant has; one without any goes by all."""
    return known | ~known.any()


def masked(logits: Tensor, known: Tensor) -> Tensor:
    """Return logits that give no chance to labels not known. They stay finite: zero times infinity is no number."""
    return logits.masked_fill(~known, torch.finfo(logits.dtype).min)
