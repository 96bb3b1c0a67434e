"""FedBABU: bodies alone are trained and averaged, under a head as it was drawn; then each client fine-tunes a copy.

Sent by a client: the weights of its network's `part` (the body, unless set) after local training, and from how many
examples they are.
Sent by the server: the mean of these weights.

Paper: Oh, Kim and Yun, FedBABU: Toward Enhanced Representation for Federated Image Classification, ICLR 2022. Algorithm
1. All have one head, drawn at random, that no client trains. For evaluation a client fine-tunes a copy of its network
on its rows.
"""

from __future__ import annotations

from dataclasses import replace
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
    Part,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    on,
)
from heterophony.parts import Cohort, Training, answers, part_of, task_loss

GLOBAL = Kind("global", to="children", weights=Part("model", part="part"))
UPDATE = Kind("update", to="parent", weights=Part("model", part="part"), examples=Scalar(low=0))
ADAPT = Kind("adapt", to="children", weights=Part("model", part="part"))

DEVIATIONS = (
    Deviation(
        "fine-tuning",
        "every `every` rounds, of a copy that nothing is sent of",
        "the paper fine-tunes once, at the end; a run here may go on, and its tables have every evaluation",
    ),
    Deviation(
        "learning rate of fine-tuning",
        "that of local training, unless `adapt_lr` is set",
        "the paper has one; as in finetune",
    ),
)


class FedBABU(Method):
    """Only bodies are trained and averaged, under one head that nobody trains; each client then fine-tunes a copy."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE, ADAPT)
    models = {
        "server": {"model": Same(start="alike")},
        "client": {"model": Same(start="alike"), "own": Same(start="alike")},
    }
    headline = "personalised"
    unused = ("local.initial",)

    part: Annotated[str, "the sub-module that is trained and travels"] = "body"
    tune: Annotated[str, "the sub-module that fine-tuning trains; empty: the whole network"] = ""
    adapt: Annotated[int, "epochs of fine-tuning"] = 1
    adapt_lr: Annotated[float | None, "learning rate of fine-tuning; none: that of local training"] = None
    every: Annotated[int, "rounds from one fine-tuning to the next"] = 1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1 or self.adapt < 0:
            raise ValueError(f"fine-tuning needs every >= 1 and adapt >= 0, got {self.every} and {self.adapt}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=self.shared(server))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load({**client.weights(), **mail.weights})
        yield self.local.fit("model", self.loss, only=(self.part,))
        return UPDATE(weights=self.shared(client), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load({**server.weights(), **self.cohort.mean(server, mail)})
        yield Mark("global")
        done = server.round
        server.round += 1
        return [] if server.round % self.every else ADAPT(round=done, weights=self.shared(server))

    @on(Each(ADAPT), role="client")
    def personalise(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load({**client.weights(), **mail.weights}, "own")
        if self.adapt:
            rate = self.adapt_lr or self.local.lr
            adapting = replace(self.local, epochs=self.adapt, steps=None, lr=rate)
            yield adapting.fit("own", self.loss, only=(self.tune,))
        yield Mark("personalised", "own")

    def shared(self, node: Node) -> Named:
        """Return the weights that travel."""
        return part_of(node, self.part)
