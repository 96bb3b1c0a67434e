"""FedALA: before each training a client mixes the global model into its own, weight by weight, by what suits its rows.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: the mean of these weights.

Paper: Zhang, Hua, Wang, Song, Xue, Ma and Guan, FedALA: Adaptive Local Aggregation for Personalized Federated Learning,
AAAI 2023. Algorithm 1. Of the layers of `part`, a client begins with own + W (global - own), all products by elements;
of all other layers with the global ones. Each W is between 0 and 1, begins as one, and goes down its gradient on some
of the client's rows. In a client's first time it does so until the losses of ten passes hardly differ, later for one
pass. With `rate = 0` it is FedAvg, to the bit.
"""

from __future__ import annotations

import statistics
from typing import Annotated

import torch

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Kind,
    Loss,
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
from heterophony.parts import Cohort, Training, answers, part_of, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
WINDOW = 10  # passes whose losses are compared, as in the authors' code

DEVIATIONS = (
    Deviation(
        "layers",
        "`part` is the head unless set",
        "the paper counts parameters from the end, and takes one layer for its larger networks",
    ),
    Deviation("passes of the first time", "at most `most`", "the paper has no end where losses go on differing"),
    Deviation(
        "rows that are learnt from",
        "drawn anew at random in each round",
        "the authors' code takes rows that stand together; the paper says at random",
    ),
    Deviation("start", "the first round is FedAvg's", "a client's own model is then the global one, or never trained"),
)


class FedALA(Method):
    """FedAvg whose clients learn, weight by weight, how much of the global model to take before they train."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("mix",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "personalised"
    unused = ("local.initial",)

    part: Annotated[str, "the sub-module whose weights are mixed; empty: the whole network"] = "head"
    rate: Annotated[float, "eta: how fast the mixture is learnt; 0 is FedAvg"] = 1.0
    share: Annotated[float, "s: share of a client's rows on which it learns the mixture"] = 0.8
    settled: Annotated[float, "standard deviation of the losses of ten passes at which the first learning ends"] = 0.1
    most: Annotated[int, "passes of the first learning, at most"] = 50
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rate >= 0 or not 0 < self.share <= 1 or not self.settled >= 0 or self.most < 1:
            given = f"{self.rate}, {self.share}, {self.settled} and {self.most}"
            raise ValueError(f"FedALA needs rate >= 0, share in (0, 1], settled >= 0 and most >= 1, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        first = client.vars.get("mix") is None
        own = client.weights()
        client.load(mail.weights)
        if not first and self.rate:
            yield from self.mix(client, own, mail.weights)
        elif first:
            client.vars["mix"] = {}
        yield self.local.fit("model", self.loss)
        yield Mark("personalised")
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def mix(self, client: Node, own: Named, common: Named) -> Steps:
        """Learn the mixture, and put it into the client's network."""
        apart = {name: tensor - own[name] for name, tensor in part_of(client, self.part).items()}
        learnt = client.vars["mix"] or {name: torch.ones_like(tensor) for name, tensor in apart.items()}
        data = self.local.examples(client)
        rows = torch.randperm(data, generator=client.rng("mixture"))[: max(1, round(self.share * data))]
        losses: list[float] = []
        once = bool(client.vars["mix"])
        while data and len(losses) < (1 if once else self.most) and not self.rests(losses):
            for batch in torch.split(rows, self.local.at(client).batch or data):
                client.load({**common, **_between(own, apart, learnt)})
                fitted = yield self.local.fit(
                    "model", self.loss, rows=batch, batch=None, epochs=1, steps=None, answer="gradient"
                )
                for name, slope in fitted.gradient.items():
                    if name in apart:
                        learnt = {**learnt, name: (learnt[name] - self.rate * slope * apart[name]).clamp(0, 1)}
            losses.append(sum(fitted.losses["model"].values()))
        client.vars["mix"] = learnt
        client.load({**common, **_between(own, apart, learnt)})
        weights = torch.cat([tensor.flatten() for tensor in learnt.values()])
        yield Note("mixture", float(weights.mean()))

    def rests(self, losses: list[float]) -> bool:
        """Return whether the last passes' losses hardly differ."""
        return len(losses) > WINDOW and statistics.pstdev(losses[-WINDOW:]) < self.settled

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        server.round += 1


def _between(own: Named, apart: Named, learnt: Named) -> Named:
    """Return the weights between one's own and the global ones."""
    return {name: own[name] + learnt[name] * step for name, step in apart.items()}
