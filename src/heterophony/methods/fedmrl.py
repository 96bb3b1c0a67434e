"""FedMRL: a private network and a small common one splice their features, from which the heads of both learn.

Leaves a client: the weights of its copy of the small network after local training, and from how many examples they are.
The private network and the projector never leave it.
Equations: The algorithm FedMRL. The features of the small network and of the private one, in this order, are spliced
and go through a linear projector of each client's own. The private head reads all that it gives, the small network's
head the first of it, as many as the small network has features (Matryoshka representations). The sum of both heads'
mean cross-entropies is minimised, and moves both networks and the projector in one step. The mean of the small networks
is by examples. A client predicts with its private head, from the features of both (the paper's mix-large).
Deviations: the paper's private networks have at least as many features as the small one. Here the projector gives as
many as the wider of both, and each head reads the first of them, as many as its network has: where the small network is
the wider one, the private head is the inner doll. The small network is the setting's `models.global`, and its features
are as many as that has. `inner` weighs the small head's loss; both count alike in the authors' code. Gradients are not
clipped, as they are (at 50) in that code. A client keeps its optimiser from round to round, the moments of its copy of
the small network included; in the authors' code that of the private network begins anew, and one for the small network
and one for the projector serve all clients in turn. Float buffers (BatchNorm's statistics) of the small network are
averaged with it. The server's network is not evaluated: its head has learnt to read what projectors give.
Reference: Yi, Yu, Ren, Wang, Liu and Li, Federated Model Heterogeneous Matryoshka Representation Learning, NeurIPS
2024.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony import (
    Built,
    Data,
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
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Spliced, Training, answers, ce

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PARTS = ("model.small.body", "model.small.head", "model.projector", "model.own.body", "model.own.head")


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
    tasks = True  # where what is shared ends before the outputs

    inner: float = 1.0  # the weight of the small head's loss; the private head's is 1
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.inner >= 0:
            raise ValueError(f"inner is a weight >= 0, got {self.inner}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        small = {f"small.{name}": tensor for name, tensor in server.weights().items()}  # what it is to a client
        return GLOBAL(self.cohort.draw(server), weights=small)

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.nested, parts=PARTS, keep="own")
        yield Mark("personalised")
        small = {name.removeprefix("small."): tensor for name, tensor in client.weights().items()}
        return UPDATE(weights=small, examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        if mail:
            server.load(self.cohort.mean(mail))
        server.round += 1

    def nested(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """The losses of both heads; each reads the first of the fused features."""
        general, own = nets["model.small.body"](batch.x), nets["model.own.body"](batch.x)
        fused = nets["model.projector"](torch.cat([general, own], -1))
        small = nets["model.small.head"](fused[..., : general.shape[-1]])
        logits = nets["model.own.head"](fused[..., : own.shape[-1]])
        return {"model": {"ce": ce(logits, batch.y), "inner": self.inner * ce(small, batch.y)}}
