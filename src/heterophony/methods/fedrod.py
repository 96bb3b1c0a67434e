"""FedRoD: a common network with a balanced loss, and a head of each client's own that adds what its labels are like.

Sent by a client: the weights of its copy of the common network after local training, and how many examples they come
from. Nothing of its own head.
Sent by the server: the mean of these weights.

Paper: Chen and Chao, On Bridging Generic and Personalized Federated Learning for Image Classification, ICLR 2022.
Algorithm 1, with linear heads. Body and common head learn from the balanced softmax loss: cross-entropy of logits plus
the logarithm of how frequent each class is at the client. The own head reads the same features. It learns from the
cross-entropy of the sum of both heads' logits, in which features and common logits are constants. A client predicts
with the sum. With `balanced = false` the common network is FedAvg's, to the bit.
"""

from __future__ import annotations

from typing import Annotated

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
from heterophony.parts import Cohort, Nets, Training, TwoHeads, answers, ce, counted

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PARTS = ("model.common.body", "model.common.head", "model.own")

DEVIATIONS = (
    Deviation(
        "own head",
        "linear, begins as zeros, and is kept from round to round",
        "the paper's variant; the other makes it by a hypernetwork, and the paper finds both alike",
    ),
    Deviation(
        "classes of which a client has no rows",
        "count as a share of 1e-12 of its rows",
        "the logarithm of zero is no number that a loss should hold",
    ),
)


class FedRoD(Method):
    """One network learns a balanced loss and is averaged; each client adds the logits of a head of its own."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {"server": {"model": Same()}, "client": {"model": Built(TwoHeads, {"common": Same()}, travels="common")}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("local.initial",)

    balanced: Annotated[bool, "whether the common network's loss is balanced"] = True
    cohort: Cohort = Cohort()
    local: Training = Training()

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        common = {f"common.{name}": tensor for name, tensor in server.weights().items()}  # as clients name it
        return GLOBAL(self.cohort.draw(server), weights=common)

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        data = client.data[self.local.data]
        counts = counted(data)
        prior = (counts / counts.sum().clamp_min(1)).clamp_min(1e-12).log().float()
        rows = {"prior": (prior if self.balanced else 0 * prior).expand(len(data), -1)}
        yield self.local.fit("model", self.losses, parts=PARTS, extra=rows)
        yield Mark("personalised")
        common = {name.removeprefix("common."): tensor for name, tensor in client.weights().items()}
        return UPDATE(weights=common, examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        server.round += 1

    def losses(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the balanced loss of the common network and the loss of the sum, which moves the own head alone."""
        features = nets["model.common.body"](batch.x)
        common = nets["model.common.head"](features)
        together = common.detach() + nets["model.own"](features.detach())
        return {"model": {"balanced": ce(common + batch.prior, batch.y), "ce": ce(together, batch.y)}}
