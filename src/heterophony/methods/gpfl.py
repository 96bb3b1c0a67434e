"""GPFL: a valve turns features to what is common and to what is a client's own; vectors of classes guide the first.

Sent by a client: its network but for the head, the valve and the vectors of classes after local training, and how many
examples they come from.
Sent by the server: the mean of these weights.

Paper: Zhang, Hua, Wang, Song, Xue, Ma, Cao and Guan, GPFL: Simultaneously Learning Global and Personalized Feature
Information for Personalized Federated Learning, ICCV 2023. The algorithm GPFL. The valve scales and shifts features by
a condition. The common condition is the mean of the vectors of classes, a client's own is their mean by how frequent
classes are at it. The loss is cross-entropy of the own head on features turned to the client's own; plus, on features
turned to what is common, that of their cosines with the vectors of classes, and `pull` times their distance from the
vector of their label, as it was sent.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from heterophony import (
    Built,
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
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Training, TurnedFeatures, answers, ce, counted

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PARTS = ("model.network.body", "model.network.head", "model.valve", "model.classes")
NETWORK = Built(TurnedFeatures, {"network": Same()}, travels=("network.body", "valve", "classes"))

DEVIATIONS = (
    Deviation(
        "conditions",
        "of the vectors of classes as they were sent, also in the first round",
        "in the authors' code they are zero at first, and then those of the vectors before these came",
    ),
    Deviation(
        "distance from the vector of the label",
        "mean over rows",
        "the authors' code has the length of all differences of a batch together, which grows with the batch",
    ),
    Deviation("weight decay", "`local.weight_decay`, of all", "the paper has one of valve and vectors alone"),
    Deviation("server's network", "not evaluated", "it has no head, and no condition of its own"),
)


class GPFL(Method):
    """Body, valve and vectors of classes are averaged; heads stay, and read features turned to a client's own."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {"server": {"model": NETWORK}, "client": {"model": NETWORK}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("local.initial",)

    pull: Annotated[float, "lambda: how strongly common features are pulled to the vector of their label"] = 0.01
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pull >= 0:
            raise ValueError(f"pull is a weight >= 0, got {self.pull}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round, data = mail.round, client.data[self.local.data]
        client.load(mail.weights)
        network = client.models["model"]
        assert isinstance(network, TurnedFeatures)
        table = mail.weights["classes.table"]
        counts = counted(data).to(table)
        own = counts @ table / counts.sum().clamp_min(1)
        with torch.no_grad():
            network.own.copy_(own)
        conditions = {"own": own, "common": table.mean(0)}
        rows = {name: condition.expand(len(data), -1).cpu() for name, condition in conditions.items()}
        rows["sent"] = table[data.y.to(table.device)].cpu()
        yield self.local.fit("model", self.turned, parts=PARTS, extra=rows)
        yield Mark("personalised")
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        if mail:
            server.load(self.cohort.mean(server, mail))
        server.round += 1

    def turned(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the losses on features turned to the client's own, and to what is common."""
        features = nets["model.network.body"](batch.x)
        own = nets["model.valve"](torch.cat([features, batch.own], -1))
        common = nets["model.valve"](torch.cat([features, batch.common], -1))
        apart = ((common - batch.sent).pow(2).sum(-1) + 1e-12).sqrt().mean()
        return {
            "model": {
                "ce": ce(nets["model.network.head"](own), batch.y),
                "classes": ce(nets["model.classes"](common), batch.y),
                "pull": self.pull * apart,
            }
        }
