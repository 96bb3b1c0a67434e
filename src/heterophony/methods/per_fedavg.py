"""Per-FedAvg: clients learn a global model from which one step on a client's own rows gives it a good model.

Sent by a client: its weights after local training, and how many examples they come from. The adapted model never leaves
it.
Sent by the server: its weights.

Paper: Fallah, Mokhtari and Ozdaglar, Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach, NeurIPS 2020. Algorithm 1 (Per-FedAvg), and its two approximations. With batches D, D' and D'',
a local step first takes v = w - alpha grad f(w; D), then w <- w - beta g with g = grad f(v; D') (FO). HF subtracts from
this g alpha times [grad f(w + delta g; D'') - grad f(w - delta g; D'')] / (2 delta), which stands for the Hessian at w
times g. beta is the rate of local training.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from heterophony import (
    Deviation,
    Each,
    Fit,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Node,
    Optimiser,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, difference, shifted, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation("mean", "by examples; `weighted = false` gives the paper's plain one", "as in fedavg"),
    Deviation(
        "batches",
        "D' are the batches of local training in turn. D and D'' are drawn beside each, of the same size, each "
        "without repetition.",
        "So a budget of epochs means as many steps as in other methods. The paper draws all three.",
    ),
    Deviation(
        "evaluation",
        "the model that a client is sent, after one step of `alpha` on a batch of its own rows, before local training",
        "the paper evaluates after one such step; this shows what the last round has come to",
    ),
)


class PerFedAvg(Method):
    """FedAvg towards a model that is good after one step on a client's own rows (MAML), not one good as it is."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "personalised"
    unused = (
        "local.initial",
        "local.optimiser",
        "local.momentum",
        "local.nesterov",
        "local.weight_decay",
        "local.clip",
        "local.refresh",
        "local.private",
    )

    alpha: Annotated[float, "rate of the step by which a client adapts the model; 0 is fedavg"] = 0.01
    variant: Annotated[Literal["first-order", "hessian-free"], "how the gradient after that step is taken"] = (
        "first-order"
    )
    delta: Annotated[float, "of hessian-free: how far the two gradients are taken from the model"] = 1e-3
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha < math.inf or not 0 < self.delta < math.inf:
            raise ValueError(f"alpha is a rate >= 0 and delta a distance > 0, got {self.alpha} and {self.delta}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        _, _, batch, rate = self.local.at(client)
        yield self.look(self.drawn(client, "adapt", batch), self.alpha)
        yield Mark("personalised")
        client.load(mail.weights)
        for number, rows in enumerate(self.local.batches(client)):
            yield from self.step(client, number, rows, rate)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def step(self, client: Node, number: int, rows: Tensor, rate: float) -> Steps:
        """Take one step of Algorithm 1, on this batch D'."""
        start = client.weights()
        yield self.look(self.drawn(client, f"first {number}", len(rows)), self.alpha)
        g = (yield self.look(rows)).gradient
        if self.variant == "hessian-free":
            others, slopes = self.drawn(client, f"last {number}", len(rows)), []
            for side in (self.delta, -self.delta):
                client.load({**client.weights(), **shifted({n: start[n] for n in g}, g, side)})
                slopes.append((yield self.look(others)).gradient)
            g = shifted(g, difference(*slopes), -self.alpha / (2 * self.delta))
        client.load({**client.weights(), **shifted({n: start[n] for n in g}, g, -rate)})

    def look(self, rows: Tensor, rate: float = 0.0) -> Fit:
        """Return an order for the gradient of these rows, and for a plain step along it."""
        return Fit("model", self.loss, self.local.data, rows=rows, optimiser=Optimiser("SGD", rate), answer="gradient")

    def drawn(self, client: Node, purpose: str, size: int | None) -> Tensor:
        """Draw a batch of the client's rows."""
        return torch.randperm(self.local.examples(client), generator=client.rng(purpose))[:size]

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        server.round += 1
