"""q-FFL: FedAvg in which clients count the more, the worse the model is on their data, so that accuracies come closer.

Sent by a client: its weights after local training, its rate, how many examples they come from, and the loss of the
model that it was sent: the mean over its private rows.
Sent by the server: its weights.

Paper: Li, Sanjabi, Beirami and Smith, Fair Resource Allocation in Federated Learning, ICLR 2020. The algorithm
q-FedAvg. With L = 1 / (a client's rate), dw_k = L (w - w_k) and h_k = q F_k^(q-1) |dw_k|^2 + L F_k^q, the server moves
by the sum of F_k^q dw_k over the sum of h_k. With `local.batch` none and one epoch of plain SGD it is q-FedSGD. With
`q = 0` it is FedAvg, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from heterophony.parts import Cohort, NodeOptimiser, Training, answers, loss_on, move, norm, task_loss, update_of

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind(
    "update",
    to="parent",
    weights=Weights("model"),
    examples=Scalar(low=0),
    loss=Scalar(low=0, high=1e30),
    rate=Scalar(low=0, high=1e30),
)
SLOWEST = 1e-30  # rates below are none: products and ratios of them need not be numbers
LEAST = 1e-10  # added to losses, as in the authors' code: F^(q-1) is then a number

DEVIATIONS = (
    Deviation(
        "p_k",
        "a client's share of the examples weighs its terms; `weighted = false` leaves it out",
        "the paper draws clients with these probabilities, and weighs them alike",
    ),
    Deviation(
        "losses",
        "of all private rows, at the model that the round began with",
        "a forward pass over them costs little beside training; the paper's may be of a batch",
    ),
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) move as far as the weights do",
        "as with a server's rate everywhere",
    ),
)


class QFFL(Method):
    """FedAvg for equal accuracies: a client's loss to the power of q says how much it counts."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("states",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial", "cohort.combine")

    q: Annotated[float, "how strongly losses count; 0 is fedavg"] = 1.0
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.q < math.inf:
            raise ValueError(f"q is a number >= 0, got {self.q}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        loss = yield from loss_on(client, self.local.data)
        yield self.local.fit("model", task_loss)
        examples, rate = self.local.examples(client), self.local.at(client).lr
        return UPDATE(weights=client.weights(), examples=examples, loss=loss, rate=rate)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        heard = [m for m in mail if m.rate > SLOWEST]
        if heard:
            shares, steps = self.weighed(server, heard)
            rate = sum(shares) / sum(steps) if any(steps) else 1.0
            yield Note("step", rate)
            move(
                server,
                self.cohort.together(server, heard, [m.weights for m in heard], shares),
                NodeOptimiser(rate=rate),
            )
        yield Mark("global")
        server.round += 1

    def weighed(self, server: Node, mail: Sequence[Message]) -> tuple[list[float], list[float]]:
        """Return for each client L F^q and h. All are divided by the largest F^q and L: so they stay finite."""
        before, worst = server.weights(), max(m.loss for m in mail) + LEAST
        slowest = min(m.rate for m in mail)
        shares, steps = [], []
        for p, m in zip(self.cohort.shares(mail) or [1.0] * len(mail), mail, strict=True):
            length, loss = norm(update_of(server, m.weights, before)), m.loss + LEAST
            shares.append(p * (loss / worst) ** self.q * (slowest / m.rate))
            steps.append(shares[-1] * (1 + self.q * length**2 / (loss * m.rate)))
        return shares, steps
