"""ASO-Fed: nobody waits; clients learn from streams, balance new changes with older ones, and slow ones step further.

Sent by a client: how far it goes from the weights that it was sent, and how many examples it has trained on.
Sent by the server: its weights.

Paper: Chen, Ning, Slawski and Rangwala, Asynchronous Online Federated Learning for Edge Devices with Non-IID Data,
IEEE Big Data 2020. Algorithms 1 and 2: the server goes n_k / N of a client's way when it comes. A client's surrogate
loss pulls it to the weights it was sent, with weight `rho`. Of the change s and the last one v it makes
s - v + h, where h = beta h + (1 - beta) v. It goes max(1, log of its mean delay) times as far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from heterophony import (
    Deviation,
    Each,
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
from heterophony.parts import Proximal, Training, difference, engage, moving, release, shifted, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
CHANGE = Kind("change", to="parent", weights=Weights("model", change=True), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "local step",
        "local training may take any number of steps; its displacement stands for the gradient",
        "the paper's rule is for one gradient; with one full batch it is that",
    ),
    Deviation("N", "the examples of the clients heard so far, as each said last", "the server knows no others"),
    Deviation("delay", "merges of the server between two questions to a client", "the paper has seconds"),
    Deviation(
        "feature learning",
        "Off unless `features` is set. The softmax over the inputs of a unit is then multiplied by their number.",
        "As printed each merge would shrink the first layer as many times as it has inputs.",
    ),
    Deviation("BatchNorm's statistics", "travel as they are, and are mixed by the same share", "they are no steps"),
)


class ASOFed(Method):
    """Nobody waits: clients send changes that are balanced with their older ones. A round is one merge."""

    roles = ("server", "client")
    kinds = (GLOBAL, CHANGE)
    memory = ("engaged", "rows", "last", "held", "asked")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial",)

    rho: Annotated[float, "lambda: how strongly a client is pulled to the weights that it was sent"] = 1.0
    balance: Annotated[bool, "a change is balanced with older ones; else it is sent as it is"] = True
    beta: Annotated[float, "how slowly older changes fade, with `balance`"] = 0.001
    dynamic: Annotated[bool, "who is asked seldom goes further"] = True
    features: Annotated[bool, "after a merge, large weights of the first layer count more"] = False
    concurrency: Annotated[float, "share of the clients at work at a time; the next is drawn among the idle"] = 1.0
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rho >= 0 or not 0 <= self.beta <= 1 or not 0 < self.concurrency <= 1:
            given = f"{self.rho}, {self.beta} and {self.concurrency}"
            raise ValueError(f"rho >= 0, beta in [0, 1] and concurrency in (0, 1] are needed, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(engage(server, self.concurrency), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.loss, transform=Proximal(self.rho), aux={"anchor": mail.weights})
        steps, now = moving(client), client.weights()
        change = {name: tensor for name, tensor in difference(now, mail.weights).items() if name in steps}
        further = self.further(client)
        change = {name: tensor * further for name, tensor in self.balanced(client, change).items()}
        return CHANGE(weights={**now, **change}, examples=self.local.examples(client))

    def further(self, client: Node) -> float:
        """Return r, by how much further a client goes: from how many merges on average it has not seen."""
        count, total, before = client.vars.get("asked", (0, 0, 0))
        if count:
            total += client.round - before
        client.vars["asked"] = (count + 1, total, client.round)
        return max(1.0, math.log(max(1.0, total / count))) if self.dynamic and count else 1.0

    def balanced(self, client: Node, change: Named) -> Named:
        """Return s - v + h, and remember both for the next time."""
        if not self.balance:
            return change
        zeros = {name: torch.zeros_like(tensor) for name, tensor in change.items()}
        last, held = client.vars.get("last", zeros), client.vars.get("held", zeros)
        client.vars["held"] = shifted({n: self.beta * t for n, t in held.items()}, last, 1 - self.beta)
        client.vars["last"] = change
        return shifted(difference(change, last), held)

    @on(Each(CHANGE), role="server")
    def merge(self, server: Node, mail: Message) -> Steps:
        release(server, [mail.sender])
        rows = {**server.vars.get("rows", {}), mail.sender: mail.examples}
        server.vars["rows"] = rows
        share = mail.examples / max(sum(rows.values()), 1)
        steps, own = moving(server), server.weights()
        way = {name: mail.weights[name] - (0 if name in steps else own[name]) for name in own}
        merged = shifted(own, way, share)
        server.load(self.featured(server, merged) if self.features else merged)
        yield Note("staleness", mail.staleness)
        yield Mark("global")
        server.round += 1

    def featured(self, server: Node, weights: Mapping[str, Tensor]) -> Named:
        """Return the weights with those of the first layer multiplied by a softmax of their sizes (Eq. 5 and 6)."""
        steps = moving(server)
        first = next((name for name, tensor in weights.items() if name in steps and tensor.dim() > 1), None)
        if first is None:
            return weights
        rows = weights[first].flatten(1)
        return {**weights, first: (rows * rows.abs().softmax(1) * rows.shape[1]).view_as(weights[first])}
