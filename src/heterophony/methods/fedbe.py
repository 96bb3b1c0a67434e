"""FedBE: the server draws further models around those of the clients, and teaches their ensemble to the next one.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: its weights. Public rows stay where they are, and need no labels.

Paper: Chen and Chao, FedBE: Making Bayesian Model Ensemble Applicable to Federated Learning, ICLR 2021. Algorithm 1: a
distribution is fitted to the clients' models, models are drawn from it, and the mean of all softmax outputs on public
rows is distilled into the mean of the clients' weights, whose later states are averaged (SWA). The Gaussian has the
weighted mean and variance of each weight; of the Dirichlet, a draw mixes the clients' models by random shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Named,
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
from heterophony.parts import (
    Cohort,
    PublicRows,
    Training,
    answers,
    cross_entropy,
    mean,
    shifted,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "Gaussian",
        "of the weights, as the paper has it",
        "the authors' code takes changes of the weights, each tensor divided by its length, and scales the draws",
    ),
    Deviation(
        "Dirichlet",
        "clients' random shares are weighted by their examples; `weighted = false`: by nothing",
        "the authors' code does not weigh them; its shares come from a symmetric Dirichlet too",
    ),
    Deviation(
        "SWA",
        "the mean of the weights after each of the last cycles (`cycles`, `averaged`), at one rate",
        "the paper lets the rate fall within each cycle; a rate here changes from round to round only",
    ),
    Deviation(
        "loss of distillation",
        "cross-entropy with the mean of the softmax outputs, summed over classes, mean over rows",
        "the authors' code has several losses as options",
    ),
)


class FedBE(Method):
    """Models drawn around those of the clients form an ensemble, which is distilled into the next global model.

    Without `draws`, `members` and `cycles` it is FedAvg, to the bit.
    """

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    serves = ("classification",)
    unused = ("local.initial", "distil.initial")
    public = True

    around: Annotated[Literal["gaussian", "dirichlet"], "what models are drawn from"] = "gaussian"
    draws: Annotated[int, "M: models that are drawn for the ensemble"] = 10
    members: Annotated[bool, "the clients' own models are of the ensemble too"] = True
    alpha: Annotated[float, "of the Dirichlet; the smaller, the more a draw is one client's model"] = 1.0
    cycles: Annotated[int, "how often the student trains as `distil` says; 0: it stays the mean"] = 4
    averaged: Annotated[int, "of how many last cycles the student's weights are averaged; 1: no averaging"] = 2
    rows: PublicRows = PublicRows()
    distil: Training = Training(lr=1e-3, optimiser="adam", batch=128)
    local: Training = Training()
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.draws, self.cycles) < 0 or self.averaged < 1 or not self.alpha > 0:
            given = f"{self.draws}, {self.cycles}, {self.averaged} and {self.alpha}"
            raise ValueError(f"draws and cycles are numbers >= 0, averaged one >= 1 and alpha > 0, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", cross_entropy)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            centre = self.cohort.mean(server, mail)
            if self.cycles:
                labels = yield from self.ensemble(server, mail, centre)
            server.load(centre)
            if self.cycles:
                yield from self.distilled(server, labels)
        yield Mark("global")
        server.round += 1

    def ensemble(self, server: Node, mail: Inbox, centre: Named) -> Steps:
        """Return the mean of what all models of the ensemble say of the round's public rows."""
        known = [m.weights for m in mail]
        shares = self.cohort.shares(mail) or [1.0] * len(mail)
        teachers = [centre, *(known if self.members else ())]
        for i in range(self.draws):
            teachers.append(self.drawn(known, shares, centre, server.rng(f"model {i}")))
        said = []
        for weights in teachers:
            server.load(weights)
            logits = yield self.rows.outputs(server)
            said.append(logits.softmax(-1))
        yield Note("ensemble", len(teachers))
        return torch.stack(said).mean(0)

    def drawn(self, known: Sequence[Named], shares: Sequence[float], centre: Named, draw: torch.Generator) -> Named:
        """Return a model drawn around the clients' models."""
        if self.around == "dirichlet":
            random = np.random.default_rng(draw.initial_seed()).dirichlet([self.alpha] * len(known)).tolist()
            return mean(known, [part * share for part, share in zip(random, shares, strict=True)])
        squares = [{name: (w[name] - centre[name]) ** 2 for name in centre} for w in known]
        spread = {name: variance.sqrt() for name, variance in mean(squares, shares).items()}
        noise = {name: torch.randn(s.shape, generator=draw).to(s) * s for name, s in spread.items()}
        return shifted(centre, noise)

    def distilled(self, server: Node, labels: Tensor) -> Steps:
        """Train the server's model on what the ensemble says, and average its last states."""
        last = []
        for cycle in range(self.cycles):
            yield self.rows.imitate(server, self.distil, labels)
            if self.averaged > 1 and cycle >= self.cycles - self.averaged:
                last.append(server.weights())
        if last:
            server.load(mean(last))
