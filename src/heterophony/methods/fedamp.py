"""FedAMP: the server makes each client a mixture of its own and others' models, most of those that are near its own.

Sent by a client: its weights after local training.
Sent by the server: the client's own mixture. No client sees another's model by itself.

Paper: Huang, Chu, Zhou, Wang, Liu, Pei and Zhang, Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI
2021. Algorithm 1, with A(x) = 1 - exp(-x / sigma). The share of another's model w_j in the mixture u_i is alpha times
the derivative of A at |w_i - w_j|^2, which is exp(-x / sigma) / sigma. What is left is the share of one's own. A client
minimises its loss plus lambda / (2 alpha) |w - u_i|^2, beginning at its own model. With `alpha = 0` it is solo without
momentum, to the bit.
"""

from __future__ import annotations

import math
from typing import Annotated

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
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Proximal, Training, answers, difference, norm, shifted, task_loss, update_of

MIXTURE = Kind("mixture", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "shares that are too large",
        "where others' shares sum to more than one, they are divided by the sum",
        "the paper takes alpha so small that they never do",
    ),
    Deviation("pull", "`pull` is lambda / alpha as a whole", "only the quotient stands in the client's loss"),
    Deviation(
        "distance from the mixture",
        "squared, as in the paper",
        "PFLlib takes the distance itself, of weights that it detaches (`clientamp.py`). That term has no gradient, so "
        "nothing pulls a client there.",
    ),
    Deviation(
        "who has not been heard", "is in no mixture, and gets its own model's start back", "in the paper all are"
    ),
)


class FedAMP(Method):
    """Everyone has its own model, pulled to a mixture that the server makes of models like it."""

    roles = ("server", "client")
    kinds = (MIXTURE, UPDATE)
    memory = ("known",)
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"
    unused = ("local.initial", "cohort.weighted", "cohort.combine")

    alpha: Annotated[float, "alpha: how large others' shares are; 0 is solo"] = 1.0
    sigma: Annotated[float, "sigma: at which squared distance of weights a share is a third of that of equals"] = 10.0
    pull: Annotated[float, "lambda / alpha: how strongly a model is pulled to its mixture"] = 1.0
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha >= 0 or not self.sigma > 0 or not self.pull >= 0:
            given = f"{self.alpha}, {self.sigma} and {self.pull}"
            raise ValueError(f"FedAMP needs an alpha >= 0, a sigma > 0 and a pull >= 0, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Steps:
        known = server.vars.get("known", {})
        for client in self.cohort.draw(server):
            shares = self.shares(server, client, known)
            if client in known:
                yield Note("shares.others", sum(shares.values()))
            own = mixture = known.get(client) or server.weights()
            for other, share in shares.items():
                mixture = shifted(mixture, difference(known[other], own), share)
            yield MIXTURE(client, weights=mixture)

    def shares(self, server: Node, client: str, known: dict[str, Named]) -> dict[str, float]:
        """Return the share of each other client's model in a client's mixture."""
        found: dict[str, float] = {}
        if client in known and self.alpha:
            for other, weights in known.items():
                if other != client:
                    apart = norm(update_of(server, known[client], weights)) ** 2
                    found[other] = self.alpha * math.exp(-apart / self.sigma) / self.sigma
        total = max(1.0, sum(found.values()))
        return {other: share / total for other, share in found.items()}

    @on(Each(MIXTURE), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        if self.alpha:
            pull, anchor = Proximal(self.pull), {"anchor": mail.weights}
            yield self.local.fit("model", self.loss, transform=pull, aux=anchor)
        else:
            yield self.local.fit("model", self.loss)
        yield Mark("personalised")
        return UPDATE(weights=client.weights())

    @on(answers(UPDATE), role="server")
    def keep(self, server: Node, mail: Inbox) -> None:
        server.vars["known"] = {**server.vars.get("known", {}), **{m.sender: m.weights for m in mail}}
        server.round += 1
