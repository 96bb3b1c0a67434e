"""Cyclic: one model goes from client to client, and each trains it in turn.

Sent by a client: the weights after its training.
Sent by the server: the weights that the client before it has made.

Paper: Chang et al., Distributed Deep Learning Networks among Institutions for Medical Imaging, JAMIA 2018. Cyclical
weight transfer: the model is with one institution for some epochs, then goes on to the next, and comes to each more
than once. A round is one turn.
"""

from __future__ import annotations

from typing import Annotated

import torch

from heterophony import (
    Deviation,
    Each,
    Every,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Node,
    Round,
    Same,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Training, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "what travels",
        "The weights go through the server, from one client to the next.",
        "Participants of a star know only the server. The model that each client trains is the same.",
    ),
    Deviation(
        "who misses a round",
        "If the client whose turn it is gives no answer, the next one gets what it would have got.",
        "The paper has no absent institutions.",
    ),
)


class Cyclic(Method):
    """One model goes from client to client; each trains what the one before it has made."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("left",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial",)

    shuffle: Annotated[bool, "each cycle has an order of its own; otherwise the clients' order"] = False
    local: Training = Training()
    loss: Loss = task_loss

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        left = server.vars.get("left") or self.order(server)
        server.vars["left"] = left[1:]
        return GLOBAL(server.group(left[:1], "turn"), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights())

    @on(Every(UPDATE, of="turn"), role="server")
    def take(self, server: Node, mail: Inbox) -> Steps:
        for m in mail:
            server.load(m.weights)
        yield Mark("global")
        server.round += 1

    def order(self, server: Node) -> list[str]:
        """Return the clients in the order of the cycle that begins."""
        clients = list(server.children)
        if not self.shuffle:
            return clients
        return [clients[i] for i in torch.randperm(len(clients), generator=server.rng("order"))]
