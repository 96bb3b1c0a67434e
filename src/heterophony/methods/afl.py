"""AFL (agnostic federated learning): FedAvg for the worst case, where clients who fare badly gain weight in the mean.

Sent by a client: its weights after local training, and the loss of the model that it was sent: the mean over its
private rows. No rows, no labels.
Sent by the server: its weights. Nobody is told the mixture lambda, which says how much each client counts.

Paper: Mohri, Sivek and Suresh, Agnostic Federated Learning, ICML 2019. Algorithm Stochastic-AFL, with a client for each
domain and all mixtures allowed. The server keeps lambda on the simplex and begins with equal shares. It averages what
the clients have learnt by lambda. Then lambda goes a step of `ascent` (gamma_lambda) along its gradient: the clients'
losses at the model that the round began with. Last, lambda is projected onto the simplex.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch

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
from heterophony.parts import Cohort, Training, answers, loss_on, onto_simplex, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), loss=Scalar(low=0, high=1e30))  # sums stay finite

DEVIATIONS = (
    Deviation(
        "local training",
        "several local steps, as in fedavg; with one full batch of plain SGD a round is the paper's step",
        "The paper sends a gradient for each step: one stochastic step from one model, for weights and lambda. "
        "Later papers compare it in the form of fedavg.",
    ),
    Deviation(
        "gradient of lambda",
        "the losses of all private rows, at the model that the round began with",
        "the paper's gradient is stochastic; a forward pass over all of them costs little beside training",
    ),
    Deviation(
        "absent clients",
        "For the mean, the lambdas of the clients heard are scaled to one. For lambda, their losses are multiplied "
        "by the number of clients for each one heard.",
        "The losses so scaled are the paper's estimate from sampled domains. A mean by small sums of lambda would "
        "move nothing.",
    ),
    Deviation("newcomers", "a client that joins later starts with an equal share", "the paper's domains do not change"),
    Deviation(
        "result",
        "the last model",
        "the paper's guarantee is for the mean of all models, which no other method here takes",
    ),
)


class AFL(Method):
    """FedAvg for the worst case: clients on whose data the model does badly gain weight in the mean.

    With `ascent=0` it is FedAvg with equal weights, to the bit, unless networks have dropout: that draws other masks.
    """

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("mixture",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("cohort.weighted", "cohort.combine", "local.initial")

    ascent: Annotated[
        float, "gamma_lambda: how far a round moves the clients' weights; 0 is fedavg with equal weights"
    ] = 0.1
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ascent < math.inf:
            raise ValueError(f"ascent is a rate >= 0, got {self.ascent}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        loss = yield from loss_on(client, self.local.data)
        yield self.local.fit("model", task_loss)
        return UPDATE(weights=client.weights(), loss=loss)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            clients = server.children
            known = server.vars.get("mixture", {})
            mixture = {client: known.get(client, 1 / len(clients)) for client in clients}
            shares = [mixture[m.sender] for m in mail]
            largest = max(shares)
            if largest > 0:
                # Divided by the largest, equal shares are ones: the mean then has the bits of FedAvg's.
                server.load(self.cohort.mean(server, mail, by=[share / largest for share in shares]))
            for m in mail:
                mixture[m.sender] += self.ascent * m.loss * len(clients) / len(mail)
            stepped = torch.tensor(list(mixture.values()), dtype=torch.float64)
            projected = onto_simplex(stepped).tolist()
            server.vars["mixture"] = dict(zip(mixture, projected, strict=True))
            yield Note("mixture.largest", max(projected))
        yield Mark("global")
        server.round += 1
