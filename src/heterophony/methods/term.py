"""TERM (tilted empirical risk minimisation): FedAvg whose mean tilts to clients with high losses, or away from them.

Sent by a client: its weights after local training, how many examples they come from, and the loss of the model that it
was sent: the mean over its private rows.
Sent by the server: its weights.

Paper: Li, Beirami, Sanjabi and Smith, Tilted Empirical Risk Minimization, ICLR 2021. The tilted objective
1/t log sum_k p_k e^(t F_k) over clients. Its gradient is the mean of the clients' gradients, weighed by p_k e^(t F_k).
A positive t is for fairness, a negative one against outliers. With `tilt = 0` it is FedAvg, to the bit.
"""

from __future__ import annotations

import math
from typing import Annotated

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, loss_on, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0), loss=Scalar(low=0, high=1e30))

DEVIATIONS = (
    Deviation(
        "local steps",
        "several, as in fedavg; with one full batch of plain SGD a round is a gradient step of the paper's objective",
        "the paper's stochastic solvers weigh gradients of batches of samples or groups",
    ),
    Deviation(
        "the server's step",
        "the tilted mean of the clients' updates: the shares of a round sum to one",
        "The authors' code divides by a running mean of e^(t F_k), which begins at nought, and by the number of "
        "clients K once more. Its first step has our direction, and is 2 / K of ours.",
    ),
    Deviation("tilt", "of clients only, not of the rows within one", "the paper's hierarchical form has both"),
    Deviation(
        "losses",
        "of all private rows, at the model that the round began with",
        "a forward pass over them costs little beside training; the paper's may be of a batch",
    ),
)


class TERM(Method):
    """FedAvg whose mean tilts towards clients on whose data the model does badly, or away from them."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial", "cohort.combine")

    tilt: Annotated[float, "t: above 0 towards high losses, below 0 away from them; 0 is fedavg"] = 1.0
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.tilt):
            raise ValueError(f"tilt is a number, got {self.tilt}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        loss = yield from loss_on(client, self.local.data)
        yield self.local.fit("model", task_loss)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client), loss=loss)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            tilted = [self.tilt * m.loss for m in mail]
            counts = self.cohort.shares(mail) or [1.0] * len(mail)
            # Against the largest, no power is too large for a float.
            shares = [p * math.exp(t - max(tilted)) for p, t in zip(counts, tilted, strict=True)]
            yield Note("share.largest", max(shares) / (sum(shares) or 1.0))
            server.load(self.cohort.together(server, mail, [m.weights for m in mail], shares))
        yield Mark("global")
        server.round += 1
