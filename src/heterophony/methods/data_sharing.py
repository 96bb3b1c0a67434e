"""Data sharing: FedAvg whose clients train on their own rows together with some rows that everyone may see.

Sent by a client: its weights after local training, and how many examples they come from, public ones included.
Sent by the server: its weights. The public rows were given to everyone before.

Paper: Zhao, Li, Lai, Suda, Civin and Chandra, Federated Learning with Non-IID Data, 2018. The data-sharing strategy.
The server first trains its model on the public rows (`warm` epochs). Each client gets a random `portion` (alpha) of
them once, and trains on its rows and these. With `portion = 1` and `warm = 0` it is FedAvg with `local.data = "all"`,
to the bit.
"""

from __future__ import annotations

from typing import Annotated

import torch

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Need,
    Node,
    NoStream,
    PublicLabels,
    Round,
    Same,
    Scalar,
    Steps,
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "shared rows",
        "the setting's public rows, with labels (`data.public`)",
        "the paper holds a part of the data back for it",
    ),
    Deviation("mean", "by examples, public ones included; `weighted = false` counts clients alike", "as in fedavg"),
)


class DataSharing(Method):
    """FedAvg whose clients also train on some labelled public rows, from a model that has seen them all."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("given",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial", "local.data")
    public = True

    portion: Annotated[float, "alpha: share of the public rows that each client gets"] = 0.5
    warm: Annotated[int, "epochs of the server on the public rows, before the first round"] = 1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.portion <= 1 or self.warm < 0:
            raise ValueError(f"portion is a share in [0, 1] and warm >= 0, got {self.portion} and {self.warm}")

    def needs(self) -> list[Need]:
        stream = NoStream("trains on private and public rows together")
        return [*super().needs(), stream, PublicLabels(instead="another method")]

    @on(Round, role="server")
    def begin(self, server: Node) -> Steps:
        if self.warm and server.round == 0:
            yield self.local.fit("model", self.loss, data="public", epochs=self.warm, steps=None, once=True)
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        own, public = len(client.data["train"]), len(client.data["public"])
        if "given" not in client.vars:
            drawn = torch.randperm(public, generator=client.rng("given"))[: round(self.portion * public)]
            client.vars["given"] = drawn.sort().values
        # In the view "all", public rows come behind private ones.
        rows = torch.cat([torch.arange(own), own + client.vars["given"]])
        yield self.local.fit("model", self.loss, data="all", rows=rows)
        return UPDATE(weights=client.weights(), examples=len(rows))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        server.round += 1
