"""FedCurv: FedAvg whose clients are held back where weights matter to the others (elastic weight consolidation).

Sent by a client: its weights after local training, the diagonal of its Fisher information there, and from how many
examples they are. These are twice the bytes of FedAvg.
Sent by the server: its weights and, over the other clients of the last round, the sum of their Fisher information F_j
and that of F_j w_j. These are three times the bytes of FedAvg.

Paper: Shoham, Avidor, Keren, Israel, Benditkis, Mor-Yosef and Zeitak, Overcoming Forgetting in Federated Learning on
Non-IID Data, 2019. The loss of FedCurv: a client's own loss plus lambda times the sum over the other clients of
(w - w_j)^T F_j (w - w_j). With `pull = 0` it is FedAvg, to the bit, unless networks have dropout: that draws others.
"""

from __future__ import annotations

import math
from typing import Annotated

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
from heterophony.parts import Cohort, Curved, Training, answers, difference, information, shifted, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"), stiffness=Weights("model"), centres=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), fisher=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "a client's own part",
        "the server leaves it out of the sums that it sends",
        "In the paper the client does. It need not know then which of its updates have arrived.",
    ),
    Deviation(
        "Fisher information",
        "estimated from `batches` batches of the client's rows with their labels; F_j w_j is computed by the server",
        "as for elastic weight consolidation elsewhere here; the paper does not say how it is estimated",
    ),
    Deviation(
        "stiffness",
        "of each weight at most 10",
        "a stiffer pull would overshoot at usual rates, and diverge",
    ),
    Deviation("absent clients", "who was not heard in the last round has no part in the sums", "the paper has no such"),
)


class FedCurv(Method):
    """FedAvg whose clients keep what matters to the others: weights are pulled to theirs, by Fisher information."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("known",)  # by client, its weights and Fisher information of the last round
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial", "local.private")

    pull: Annotated[float, "lambda: how strongly weights are pulled to those of the others; 0 is fedavg"] = 1.0
    batches: Annotated[int, "batches over which a client takes its Fisher information"] = 4
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.pull < math.inf or self.batches < 1:
            raise ValueError(f"FedCurv needs a pull >= 0 and batches >= 1, got {self.pull} and {self.batches}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        known, weights = server.vars.get("known", {}), server.weights()
        stiffness, centres = zeros(weights), zeros(weights)
        for own in known.values():
            stiffness, centres = shifted(stiffness, own["fisher"]), shifted(centres, weighed(own))
        sends = []
        for client in self.cohort.draw(server):
            others = stiffness, centres
            if client in known:
                own = known[client]
                others = difference(stiffness, own["fisher"]), difference(centres, weighed(own))
            sends.append(GLOBAL([client], weights=weights, stiffness=others[0], centres=others[1]))
        return sends

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        others = {"stiffness": mail.stiffness, "centres": mail.centres}
        yield self.local.fit("model", self.loss, transform=Curved(self.pull), aux=others)
        found = yield from information(client, self.local, self.loss, self.batches)
        weights = client.weights()
        fisher = {**zeros(weights), **(found or {})}  # buffers have none
        return UPDATE(weights=weights, fisher=fisher, examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
            server.vars["known"] = {m.sender: {"fisher": m.fisher, "weights": m.weights} for m in mail}
        yield Mark("global")
        server.round += 1


def zeros(weights: Named) -> dict[str, Tensor]:
    """Return zeros of the form of these weights."""
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def weighed(own: dict[str, Named]) -> dict[str, Tensor]:
    """Return a client's weights, each times its Fisher information."""
    return {name: own["fisher"][name] * tensor for name, tensor in own["weights"].items()}
