"""MOON: FedAvg whose clients keep their features near those of the global model, and away from their own last ones.

Leaves a client: what leaves it in FedAvg.
Equations: Algorithm 1. The loss is cross-entropy plus mu times the model-contrastive loss
-log(e^(s_g / tau) / (e^(s_g / tau) + e^(s_p / tau))), with s_g and s_p the cosine similarities of a row's features with
those that the global model and the client's model of its last round give; mean over rows.
Deviations: features are what the network's head reads; the paper puts a projection head of two layers before it. A
client's first round has no last model and is FedAvg's; later, the last model is that of the last round in which the
client took part. Both models that are only asked are in evaluation mode. With `mu=0` it is FedAvg to the bit.
Reference: Li, He and Song, Model-Contrastive Federated Learning, CVPR 2021.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
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
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Training, answers, ce, cross_entropy, features_of

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PARTS = ("model.body", "model.head", "common.body", "previous.body")


class Moon(Method):
    """FedAvg with a contrastive loss between models: near the global one, away from one's own last one."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("trained",)
    models = {"server": {"model": Same()}, "client": {"model": Same(), "common": Same(), "previous": Same()}}
    headline = "global"
    unused = ("local.initial",)

    mu: float = 1.0  # the weight of the contrastive loss
    tau: float = 0.5  # its temperature
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
            yield self.local.fit("model", cross_entropy)
        return UPDATE(weights=client.weights(), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(mail))
        yield Mark("global")
        server.round += 1

    def contrast(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """The loss of Algorithm 1; -log(a / (a + b)) is softplus(log b - log a)."""
        features = nets["model.body"](batch.x)
        near, away = (F.cosine_similarity(features, nets[n](batch.x), dim=-1) for n in ("common.body", "previous.body"))
        contrast = F.softplus((away - near) / self.tau).mean()
        return {"model": {"ce": ce(nets["model.head"](features), batch.y), "contrast": self.mu * contrast}}
