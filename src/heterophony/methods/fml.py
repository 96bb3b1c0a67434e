"""FML: a private network and a copy of the global one teach each other at every client.

Sent by a client: the weights of its copy of the global network (the meme). Nothing of the private network. Where only a
part of the global network is shared, its other layers (adaptors, of each client's own number of classes) stay too.
Sent by the server: the weights of the global network, or of its shared part.

Paper: Shen et al., Federated Mutual Learning, 2020. Algorithm 1; Eq. 5 (both losses), Section 6 (the unweighted mean).
KL is summed over classes and averaged over the batch, at temperature 1. In each loss the other network's prediction is
a constant. Both networks step from the same forward pass.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from torch import Tensor

from heterophony import (
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
    Send,
    Steps,
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Scheduled, Training, answers, schedules, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("meme"))
MEME = Kind("meme", to="parent", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "alpha, beta",
        "0.5 unless set, or a ramp over rounds",
        "the values stand only in the authors' code; Section 6 speaks of changing them: larger early and smaller "
        "late, or the other way round",
    ),
    Deviation(
        "part of a model shared",
        "the server's model is not evaluated: its other part has learnt nothing",
        "the paper reports personalised models there",
    ),
)


class FML(Method):
    """Private networks differ. A common one travels; it learns from each of them, and each learns from it."""

    roles = ("server", "client")
    kinds = (GLOBAL, MEME)
    models = {"server": {"model": Global()}, "client": {"model": Own(), "meme": Global()}}
    headline = "personalised"
    trusts = True
    unused = ("cohort.weighted", "local.private")
    tasks = True  # where what is shared ends before the outputs

    alpha: Annotated[Scheduled, "share of the labels in the private network's loss (Eq. 5); the rest is KL"] = 0.5
    beta: Annotated[Scheduled, "share of the labels in the meme's loss (Eq. 5); the rest is KL"] = 0.5
    cohort: Cohort = Cohort()
    local: Training = Training(lr=0.01, momentum=0.9, weight_decay=5e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, share in (("alpha", self.alpha), ("beta", self.beta)):
            if not all(0 <= value <= 1 for value in schedules.ends(share)):
                raise ValueError(f"{name} is a share in [0, 1], got {share}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights, "meme")
        yield from self.local.before_first_round(client, task_loss)
        alpha = schedules.at(self.alpha, client.round)
        beta = schedules.at(self.beta, client.round)
        loss = partial(self.mutual, alpha=alpha, beta=beta)
        # The private network goes on, so its optimiser is kept. The meme is a new copy in each round.
        yield self.local.fit(("model", "meme"), loss, keep={"model": "own"})
        yield Mark("personalised")
        return MEME(weights=client.weights("meme"))

    def sums(self) -> Sum:
        return self.cohort.sum(MEME, "weights")

    @on(answers(MEME), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load((yield from self.cohort.merged(server, mail, self.local.on_public(task_loss), by=None)))
        if server.slots["model"].whole:  # of a part, the other layers are at the clients and have learnt nothing here
            yield Mark("global")
        server.round += 1

    def mutual(self, nets: Nets, batch: Data, alpha: float, beta: float) -> dict[str, dict[str, Tensor]]:
        """Return both losses of Eq. 5."""
        task = batch.task  # of classes: the loss is cross-entropy, and the distance KL
        own, meme = nets["model"](batch.x), nets["meme"](batch.x)
        return {
            "model": {task.term: alpha * task.loss(own, batch.y), "kl": (1 - alpha) * task.distance(meme, own)},
            "meme": {task.term: beta * task.loss(meme, batch.y), "kl": (1 - beta) * task.distance(own, meme)},
        }
