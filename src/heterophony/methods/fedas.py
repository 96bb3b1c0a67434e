"""FedAS: each client aligns the common body with its own features first, and counts by what it learns of its rows.

Sent by a client: the weights of its network's `part` (the body, unless set) after local training, and the trace of its
Fisher information.
Sent by the server: the mean of these weights, each counting by its trace.

Paper: Yang, Huang and Ye, FedAS: Bridging Inconsistency in Personalized Federated Learning, CVPR 2024. Its algorithm.
Alignment: the body that came takes an epoch towards the client's prototypes, the mean features that its own body gives
for each class. The loss is a sum over the classes in a batch. Of each class it is the squared distance from the
prototype, averaged over rows and features. Then the client trains body and own head. The weight in the mean is the
trace of the Fisher information of its network on its rows, so that those who have learnt little count little.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
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
    Part,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    on,
)
from heterophony.parts import Cohort, Nets, Training, answers, by_label, features_of, information, part_of, task_loss

GLOBAL = Kind("global", to="children", weights=Part("model", part="part"))
UPDATE = Kind("update", to="parent", weights=Part("model", part="part"), trace=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "Fisher information",
        "The mean over `batches` batches, drawn at random, of rows times squared gradient, in training mode.",
        "That estimates a row's. Public code adds the squares of all batches in evaluation mode, so that who has more "
        "batches counts more.",
    ),
    Deviation(
        "alignment",
        "not in a client's first round",
        "its own body has learnt nothing then, and is the common one",
    ),
    Deviation("head", "stays with its client", "in the paper too; public code also averages it, and uses no average"),
)


class FedAS(Method):
    """Clients pull the common body to their own features before they train, and count by their Fisher information."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("trained",)
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("local.initial",)

    part: Annotated[str, "the sub-module that travels; it holds the body"] = "body"
    align: Annotated[int, "epochs of alignment"] = 1
    align_lr: Annotated[float, "learning rate of alignment"] = 0.01
    batches: Annotated[int, "batches from which the Fisher information is taken"] = 4
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.align < 0 or not self.align_lr > 0 or self.batches < 1:
            given = f"{self.align}, {self.align_lr} and {self.batches}"
            raise ValueError(f"FedAS needs align >= 0, align_lr > 0 and batches >= 1, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=self.shared(server))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round, data = mail.round, client.data[self.local.data]
        features_of(client.models["model"], "FedAS")
        if client.vars.get("trained") and self.align and len(data):
            features = yield Predict("model.body", self.local.data)
            own = by_label(features, data)
            client.load({**client.weights(), **mail.weights})
            aligning = replace(self.local, epochs=self.align, steps=None, lr=self.align_lr)
            rows = {"prototype": own.means[data.y]}
            yield aligning.fit("model", self.near, parts=("model.body",), only=("body",), extra=rows)
        else:
            client.load({**client.weights(), **mail.weights})
        client.vars["trained"] = True
        yield self.local.fit("model", task_loss)
        yield Mark("personalised")
        learnt = yield from information(client, self.local, task_loss, self.batches)
        trace = sum(float(tensor.sum()) for tensor in learnt.values()) if learnt else 0.0
        yield Note("fisher.trace", trace)
        return UPDATE(weights=self.shared(client), trace=trace)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        if mail:
            server.load({**server.weights(), **self.cohort.mean(server, mail, by="trace")})
        server.round += 1

    def near(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the squared distances from prototypes: mean over a class's rows and features, sum over classes."""
        apart = (nets["model.body"](batch.x) - batch.prototype).pow(2).mean(-1)
        member = F.one_hot(batch.y, batch.classes or 0).to(apart)
        return {"model": {"align": (member @ (1 / member.sum(0).clamp_min(1)) * apart).sum()}}

    def shared(self, node: Node) -> Named:
        """Return the weights that travel."""
        return part_of(node, self.part)
