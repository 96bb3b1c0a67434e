"""MOCHA: everyone has a model of its own, and the server learns how these are related.

Sent by a client: its weights after local training.
Sent by the server: to each client one sum of the other clients' weights, by how they are related to it, and how much
its own weights count. Nobody is told whose weights are in it.

Paper: Smith, Chiang, Sanjabi and Talwalkar, Federated Multi-Task Learning, NeurIPS 2017. Eq. 1 with the regulariser
pull/2 tr(W R W^T), where column t of W is client t's weights. `relation = "learned"`: R is the inverse of
Omega = (W^T W)^(1/2) / tr((W^T W)^(1/2)), made anew in each round (Zhang and Yeung's prior, Appendix B).
`relation = "mean"`: R = I - 1/m, which pulls everyone to the mean (Evgeniou and Pontil's).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

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
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Curved, Training, answers, dot, shifted, task_loss

RELATED = Kind("related", to="children", weights=Weights("model"), own=Scalar(low=0))
UPDATE = Kind("update", to="parent", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "solver",
        "local SGD on a client's own part of Eq. 1, with the others' weights as they were; any network",
        "The paper's clients solve a dual problem of a convex loss, which networks have not. For a linear model the "
        "objective is the paper's.",
    ),
    Deviation(
        "Omega",
        "made anew in every round, of the clients that were heard so far; `ridge` is added to it",
        "The paper changes it now and then. With as many weights as clients or fewer it has no inverse.",
    ),
    Deviation(
        "first round",
        "who has not been heard trains without a pull",
        "the server knows nothing of it, nor it of the others",
    ),
    Deviation(
        "stiff pulls", "at most `limit`", "at a rate of 1/limit a step goes all the way; beyond it would diverge"
    ),
)


class Mocha(Method):
    """Everyone has a model of its own; the server learns how they are related, and each is pulled by its relations.

    With `pull = 0` it is solo without momentum, to the bit.
    """

    roles = ("server", "client")
    kinds = (RELATED, UPDATE)
    memory = ("known",)
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"
    unused = ("local.initial", "cohort.weighted", "cohort.combine")

    pull: Annotated[float, "weight of the regulariser that relates the models"] = 0.01
    relation: Annotated[Literal["learned", "mean"], "from the models, or everyone alike to the mean"] = "learned"
    ridge: Annotated[float, "what is added to Omega's diagonal before it is inverted"] = 0.01
    limit: Annotated[float, "the stiffest pull"] = 10.0
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pull >= 0 or not self.ridge > 0 or not self.limit > 0:
            given = f"{self.pull}, {self.ridge} and {self.limit}"
            raise ValueError(f"pull is a weight >= 0, ridge and limit are numbers > 0, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        known = server.vars.get("known", {})
        names, related = list(known), self.related(list(known.values()))
        sends = []
        for client in self.cohort.draw(server):
            total, own = {name: torch.zeros_like(tensor) for name, tensor in server.weights().items()}, 0.0
            if client in known:
                row = related[names.index(client)].tolist()
                own = row[names.index(client)]
                for other, share in zip(names, row, strict=True):
                    total = total if other == client else shifted(total, known[other], share)
            sends.append(RELATED(client, weights=total, own=own))
        return sends

    def related(self, models: Sequence[Named]) -> Tensor:
        """Return R: for each two models how they pull at each other. Below zero, they pull together."""
        count = len(models)
        if self.relation == "mean" or not models:
            return torch.eye(count, dtype=torch.float64) - 1 / max(count, 1)
        exact = [{name: tensor.double() for name, tensor in model.items()} for model in models]  # large ones, too
        products = torch.tensor([[float(dot(a, b)) for b in exact] for a in exact], dtype=torch.float64)
        squares, axes = torch.linalg.eigh(products)
        roots = squares.clamp_min(0).sqrt()
        omega = roots / roots.sum() if roots.sum() > 0 else torch.full_like(roots, 1 / count)
        inverse: Tensor = (axes / (omega + self.ridge)) @ axes.T
        return inverse

    @on(Each(RELATED), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        aux = {
            "stiffness": {name: torch.full_like(tensor, mail.own) for name, tensor in mail.weights.items()},
            "centres": {name: -tensor for name, tensor in mail.weights.items()},
        }
        yield self.local.fit("model", self.loss, transform=Curved(self.pull / 2, self.limit), aux=aux)
        yield Mark("personalised")
        return UPDATE(weights=client.weights())

    @on(answers(UPDATE), role="server")
    def keep(self, server: Node, mail: Inbox) -> None:
        server.vars["known"] = {**server.vars.get("known", {}), **{m.sender: m.weights for m in mail}}
        server.round += 1
