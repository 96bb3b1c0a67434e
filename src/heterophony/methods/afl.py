"""AFL (agnostic federated learning): clients count by weights that the server moves towards those who fare worst.

Leaves a client: its weights after local training, and the mean loss on its private rows of the model that it was sent.
Leaves the server: its weights; nobody is told the mixture.
Equations: the algorithm Stochastic-AFL, with a client for each domain and all mixtures allowed. The server holds lambda
on the simplex, equal shares at first. It averages what the clients have learnt by lambda; then lambda goes a step of
`ascent` (gamma_lambda) along the gradient, which is the clients' losses at the model that the round began with, and is
projected onto the simplex.
Deviations: the paper takes one stochastic step from one model for both; here clients train as in FedAvg (the form in
which later papers compare it) and lambda's gradient is of all private rows. With one full batch of plain SGD a round is
the paper's step. The last model is the result, not the mean of all. Where only some were heard, their lambdas are
scaled to one for the mean, and their losses by how many there are for each heard (the paper's estimate from sampled
domains). Whoever joins later starts with an equal share. With `ascent=0` it is FedAvg with equal weights, to the bit
(dropout draws others).
Reference: Mohri, Sivek and Suresh, Agnostic Federated Learning, ICML 2019.
"""

from __future__ import annotations

import math

import torch

from heterophony import (
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, ce, cross_entropy, onto_simplex

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), loss=Scalar(low=0, high=1e30))  # sums stay finite


class AFL(Method):
    """FedAvg for the worst case: clients on whose data the model does badly gain weight in the mean."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("mixture",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("cohort.weighted", "local.initial")

    ascent: float = 0.1  # gamma_lambda: how far a round moves the clients' weights
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
        data, loss = client.data[self.local.data], 0.0
        if len(data):
            loss = float(ce((yield Predict("model", self.local.data)), data.y))
        yield self.local.fit("model", cross_entropy)
        return UPDATE(weights=client.weights(), loss=loss)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            known, everyone = server.vars.get("mixture", {}), server.children
            mixture = {client: known.get(client, 1 / len(everyone)) for client in everyone}
            if most := max(mixture[m.sender] for m in mail):  # by the largest: equal ones are ones, as in FedAvg
                server.load(self.cohort.mean(mail, by=[mixture[m.sender] / most for m in mail]))
            for m in mail:
                mixture[m.sender] += self.ascent * m.loss * len(everyone) / len(mail)
            nearest = onto_simplex(torch.tensor([*mixture.values()], dtype=torch.float64)).tolist()
            server.vars["mixture"] = dict(zip(mixture, nearest, strict=True))
            yield Note("mixture.largest", max(nearest))
        yield Mark("global")
        server.round += 1
