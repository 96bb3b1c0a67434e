"""FedDBE: each client's features are shifted by a vector of its own, and the means of unshifted ones are kept together.

Sent by a client: the weights of its copy of the common network after local training, and how many examples they come
from; in its first round, the mean of its features too.
Sent by the server: the mean of these weights, and the mean of the features.

Paper: Zhang, Hua, Cao, Wang, Song, Xue, Ma and Guan, Eliminating Domain Bias for Federated Learning in Representation
Space, NeurIPS 2023. The algorithm of FedAvg+DBE. Personalised representation bias memory (PRBM): the head reads
features plus a vector that a client learns and keeps. Mean regularisation (MR): kappa/2 times the squared distance,
averaged over features, of a batch's mean features from the mean of all clients'. That mean is taken once, from clients
that have trained without both. Before it is known, a round is FedAvg's.
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
    Features,
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
from heterophony.parts import Cohort, Nets, ShiftedFeatures, Training, answers, features_of

GLOBAL = Kind("global", to="children", weights=Weights("model"), mean=Features)
UPDATE = Kind("update", to="parent", weights=Weights("model"), mean=Features, examples=Scalar(low=0))
PARTS = ("model.common.body", "model.common.head", "model.own")

DEVIATIONS = (
    Deviation(
        "first round",
        "It is FedAvg's, and its weights count. The means of features are of the trained networks, in evaluation mode.",
        "The authors' code begins anew after it, and takes means of batches while networks change.",
    ),
    Deviation(
        "running mean",
        "the mean of each batch",
        "the paper lets it run over batches; its momentum of one is this",
    ),
    Deviation(
        "who is not heard in the first round",
        "has no part in the mean of features",
        "the paper asks everyone first",
    ),
)


class FedDBE(Method):
    """A shift of features for each client, learnt and kept, while the means of unshifted features are kept together."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("mean",)
    models = {
        "server": {"model": Same()},
        "client": {"model": Built(ShiftedFeatures, {"common": Same()}, travels="common")},
    }
    headline = "personalised"
    unused = ("local.initial",)

    kappa: Annotated[float, "how strongly mean features are pulled to the mean of all clients'"] = 1.0
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kappa >= 0:
            raise ValueError(f"kappa is a weight >= 0, got {self.kappa}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        common = {f"common.{name}": tensor for name, tensor in server.weights().items()}  # as clients name it
        return GLOBAL(self.cohort.draw(server), weights=common, mean=server.vars.get("mean", torch.zeros(0, 0)))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round, told = mail.round, torch.zeros(0, 0)
        client.load(mail.weights)
        network = client.models["model"]
        assert isinstance(network, ShiftedFeatures)
        if mail.mean.shape == (1, network.own.by.shape[0]):
            rows = {"mean": mail.mean.expand(self.local.examples(client), -1)}
            yield self.local.fit("model", self.biased, parts=PARTS, extra=rows)
        else:
            yield self.local.fit("model", self.unbiased, parts=PARTS[:2], only=("common",))
            if self.local.examples(client):
                features = yield Predict("model.common.body", self.local.data)
                told = features.float().mean(0, keepdim=True)
        yield Mark("personalised")
        common = {name.removeprefix("common."): tensor for name, tensor in client.weights().items()}
        return UPDATE(weights=common, mean=told, examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
            if "mean" not in server.vars:
                width = features_of(server.models["model"], "FedDBE")
                told = [m for m in mail if m.mean.shape == (1, width)]
                items = [{"mean": m.mean} for m in told]
                if told:
                    shares = self.cohort.shares(told)
                    server.vars["mean"] = self.cohort.together(server, told, items, shares)["mean"]
        yield Mark("global")
        server.round += 1

    def unbiased(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss without shift and pull."""
        logits = nets["model.common.head"](nets["model.common.body"](batch.x))
        return {"model": {batch.task.term: batch.task.loss(logits, batch.y)}}

    def biased(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss on shifted features, and the pull on the mean of the unshifted ones."""
        features = nets["model.common.body"](batch.x)
        logits = nets["model.common.head"](nets["model.own"](features))
        apart = (features.mean(0) - batch.mean[0]).pow(2).mean()
        return {"model": {batch.task.term: batch.task.loss(logits, batch.y), "mean": self.kappa / 2 * apart}}
