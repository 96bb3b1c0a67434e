"""kNN-Per: FedAvg; each client mixes the global model's predictions with the labels of its own rows that look alike.

Sent by a client: its weights after local training, and how many examples they come from. Nothing of what it remembers.
Sent by the server: its weights.

Paper: Marfoq, Neglia, Kameni and Vidal, Personalized Federated Learning through Local Memorization, ICML 2022.
Algorithm 1 and Eq. 7-8. A client remembers the global model's features of its rows, with their labels. For a new row it
takes the `nearest` of these. Each votes for its label by exp(-distance). The prediction is `share` of the votes and the
rest of the global model's.
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
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Neighbours, Nets, Training, answers

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
REMEMBER = Kind("remember", to="children", weights=Weights("model"))

DEVIATIONS = (
    Deviation("share", "the same for all clients", "the paper's clients choose theirs on validation rows"),
    Deviation(
        "what is remembered",
        "2048 rows at most, drawn at random, which stay the same only within a round",
        "a network's tensors have one shape; the paper studies smaller memories too",
    ),
    Deviation("when", "every `every` rounds", "the paper does it once, at the end; as in finetune"),
)


class KNNPer(Method):
    """FedAvg whose clients also look up which of their own rows are most like the one to be predicted."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE, REMEMBER)
    models = {"server": {"model": Same()}, "client": {"model": Built(Neighbours, {"common": Same()}, travels="common")}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("local.initial",)

    share: Annotated[float, "lambda: share of the neighbours in a prediction; 0 is FedAvg"] = 0.5
    nearest: Annotated[int, "k: neighbours that are asked"] = 10
    every: Annotated[int, "rounds from one remembering to the next"] = 1
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share <= 1 or self.nearest < 1 or self.every < 1:
            given = f"{self.share}, {self.nearest} and {self.every}"
            raise ValueError(f"kNN-Per needs a share in [0, 1], nearest >= 1 and every >= 1, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=_named(server))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.common, parts=("model.common",), only=("common",))
        common = {name.removeprefix("common."): tensor for name, tensor in client.weights().items()}
        return UPDATE(weights=common, examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        done = server.round
        server.round += 1
        return [] if server.round % self.every else REMEMBER(round=done, weights=_named(server))

    @on(Each(REMEMBER), role="client")
    def remember(self, client: Node, mail: Message) -> Steps:
        client.round, data = mail.round, client.data[self.local.data]
        client.load(mail.weights)
        network = client.models["model"]
        assert isinstance(network, Neighbours)
        network.share.fill_(self.share)
        network.nearest.fill_(self.nearest)
        features = yield Predict("model.common.body", self.local.data)
        drawn = torch.randperm(len(data), generator=client.rng("memory"))
        network.remember(features[drawn], data.y[drawn])
        yield Mark("personalised")

    def common(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss of the common network."""
        return {"model": {batch.task.term: batch.task.loss(nets["model.common"](batch.x), batch.y)}}


def _named(server: Node) -> dict[str, Tensor]:
    """Return the server's weights by the names that clients have for them."""
    return {f"common.{name}": tensor for name, tensor in server.weights().items()}
