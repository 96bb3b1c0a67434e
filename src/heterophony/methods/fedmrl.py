"""FedMRL: a private network and a small common one put their features together, and the heads of both learn from them.

Sent by a client: the weights of its copy of the small network after local training, and from how many examples they
are. Nothing of the private network or of the projector.
Sent by the server: the weights of the small network.

Paper: Yi, Yu, Ren, Wang, Liu and Li, Federated Model Heterogeneous Matryoshka Representation Learning, NeurIPS 2024.
The algorithm FedMRL. The features of the small network and of the private one, in this order, are spliced. A linear
projector, one of each client's own, reads them. The private head reads all that it gives. The small network's head
reads the first of it, as many as the small network has features (Matryoshka representations). The sum of both heads'
mean cross-entropies moves both networks and the projector in one step. The mean of the small networks is by examples.
A client predicts with its private head, from the features of both networks (the paper's mix-large).
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
    Global,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    Round,
    Scalar,
    Send,
    Steps,
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Spliced, Training, answers

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PARTS = ("model.small.body", "model.small.head", "model.projector", "model.own.body", "model.own.head")

DEVIATIONS = (
    Deviation(
        "widths",
        "The projector gives as many features as the wider of both networks has. Each head reads the first of them, "
        "as many as its network has. So the private head is the inner doll where the small network is the wider "
        "one.",
        "The paper's small network is never the wider one. Ours is the setting's `models.global`.",
    ),
    Deviation("weights of the losses", "`inner` weighs the small head's loss", "in the authors' code both count alike"),
    Deviation(
        "optimiser",
        "A client keeps its own from round to round, that of its copy of the small network included.",
        "All private networks do so here. In the authors' code the private one begins anew. There, one optimiser "
        "each for small network and projector serves all clients in turn.",
    ),
    Deviation(
        "gradients",
        "not clipped",
        "the authors' code clips their norm at 50; none of our methods does",
    ),
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) of the small network are averaged with it",
        "as in fedavg",
    ),
    Deviation(
        "server's network",
        "not evaluated",
        "its head has learnt to read what the clients' projectors give",
    ),
)


class FedMRL(Method):
    """Different private networks and a small common one, which travels; both heads learn from the features of both."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {
        "server": {"model": Global()},
        "client": {"model": Built(Spliced, {"small": Global(), "own": Own()}, travels="small")},
    }
    headline = "personalised"
    unused = ("local.initial",)
    tasks = True  # clients may have other classes if what is shared ends before the outputs

    inner: Annotated[float, "weight of the small head's loss; that of the private head's is 1"] = 1.0
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.inner >= 0:
            raise ValueError(f"inner is a weight >= 0, got {self.inner}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        small = {f"small.{name}": tensor for name, tensor in server.weights().items()}  # as clients name it
        return GLOBAL(self.cohort.draw(server), weights=small)

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.nested, parts=PARTS, keep="own")
        yield Mark("personalised")
        small = {name.removeprefix("small."): tensor for name, tensor in client.weights().items()}
        return UPDATE(weights=small, examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        if mail:
            server.load(self.cohort.mean(server, mail))
        server.round += 1

    def nested(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the losses of both heads. Each head reads the first of the fused features."""
        general, own = nets["model.small.body"](batch.x), nets["model.own.body"](batch.x)
        fused = nets["model.projector"](torch.cat([general, own], -1))
        small = nets["model.small.head"](fused[..., : general.shape[-1]])
        logits = nets["model.own.head"](fused[..., : own.shape[-1]])
        task = batch.task
        return {"model": {task.term: task.loss(logits, batch.y), "inner": self.inner * task.loss(small, batch.y)}}
