"""MOON: FedAvg whose clients keep their features near those of the global model, and away from their own last ones.

Sent by a client: its weights after local training and the number of its examples, as in FedAvg. No features.
Sent by the server: its weights.

Paper: Li, He and Song, Model-Contrastive Federated Learning, CVPR 2021. Algorithm 1. The loss is cross-entropy plus mu
times the model-contrastive loss -log(e^(s_g / tau) / (e^(s_g / tau) + e^(s_p / tau))), mean over rows. s_g and s_p are
the cosine similarities of a row's features with those of the global model, and with those of the client's model of its
last round.
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Training, answers, features_of, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PARTS = ("model.body", "model.head", "common.body", "previous.body")

DEVIATIONS = (
    Deviation(
        "features",
        "what the network's head reads; no projection head of two layers before it",
        "our networks have none; two more layers would make another network than the other methods train",
    ),
    Deviation(
        "first round",
        "a client's first round is FedAvg's",
        "There is no last model yet. With the same model twice, both terms of the contrast would be equal and their "
        "gradients would cancel.",
    ),
    Deviation(
        "last model",
        "the client's own after the last round in which it took part",
        "not every client takes part in every round",
    ),
    Deviation(
        "evaluation mode",
        "the two models that are only asked are in evaluation mode",
        "teachers are in that mode everywhere; with `mu = 0` it is FedAvg to the bit",
    ),
)


class Moon(Method):
    """FedAvg with a contrastive loss between models: near the global one, away from the client's own last one."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("trained",)
    models = {"server": {"model": Same()}, "client": {"model": Same(), "common": Same(), "previous": Same()}}
    headline = "global"
    trusts = True
    unused = ("local.initial", "local.private")

    mu: Annotated[float, "weight of the contrastive loss"] = 1.0
    tau: Annotated[float, "temperature of the contrastive loss"] = 0.5
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0 or not self.tau > 0:
            raise ValueError(f"mu is a weight >= 0 and tau a temperature > 0, got {self.mu} and {self.tau}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        features_of(client.models["model"], "MOON")
        if "trained" in client.vars:
            client.copy("model", "previous")
            client.load(mail.weights)
            client.copy("model", "common")
            yield self.local.fit("model", self.contrast, teachers=("common", "previous"), parts=PARTS)
        else:
            client.load(mail.weights)
            client.vars["trained"] = True
            yield self.local.fit("model", task_loss)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load((yield from self.cohort.merged(server, mail, self.local.on_public(task_loss))))
        yield Mark("global")
        server.round += 1

    def contrast(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the terms of the loss of Algorithm 1."""
        features = nets["model.body"](batch.x)
        near = F.cosine_similarity(features, nets["common.body"](batch.x), dim=-1)
        away = F.cosine_similarity(features, nets["previous.body"](batch.x), dim=-1)
        contrast = F.softplus((away - near) / self.tau).mean()  # -log(a / (a + b)) is softplus(log b - log a)
        task, outputs = batch.task, nets["model.head"](features)
        return {"model": {task.term: task.loss(outputs, batch.y), "contrast": self.mu * contrast}}
