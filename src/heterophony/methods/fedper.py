"""FedPer: the first layers of a network are averaged, the last ones stay with each client.

Sent by a client: the weights of its network's `part` (the body, unless set) after local training, and from how many
examples they are. Its other layers never leave it.
Sent by the server: the mean of these weights.

Paper: Arivazhagan et al., Federated Learning with Personalization Layers, 2019. The algorithms FedPer-Server and
FedPer-Client. Both parts are trained together, the mean is by examples. With the whole network as `part` it is FedAvg,
to the bit. With the head it is `lg-fedavg`, and with `alone` it is `fedrep`.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
    NetworksByRole,
    Node,
    Part,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Sum,
    on,
    within,
)
from heterophony.parts import Cohort, Training, answers, biased_width, grouped, head_of, part_of, replaced, task_loss

PART = Part("model", part="part", width="width")
GLOBAL = Kind("global", to="children", weights=PART)
UPDATE = Kind("update", to="parent", weights=PART, examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "networks",
        "only the layers that travel must be alike, the others may differ; all clients begin with the server's layers",
        "nothing else is averaged; the paper's clients have one architecture",
    ),
)


class FedPer(Method):
    """A part of the network is averaged; everyone has the rest, and so a model, of its own."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("head",)
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"

    part: Annotated[str, "the sub-module that travels"] = "body"
    width: Annotated[
        int | None, "a head that travels reads features in so many groups; none: they are taken as they are"
    ] = None
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
    alone: Annotated[
        int | None, "epochs in which only what stays is trained, before only the part is; none: both together"
    ] = None
    norms: Annotated[
        Literal["shared", "private"], "whether BatchNorm's layers, as far as they are of the part, travel"
    ] = "shared"

    def networks(self) -> NetworksByRole:
        common = Same(start="alike", norms=self.norms)
        return {"server": {"model": common}, "client": {"model": common}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alone is not None and self.alone < 0:
            raise ValueError(f"alone is a number of epochs >= 0, or none, got {self.alone}")
        if self.width is not None and (self.width < 1 or self.part != "head"):
            raise ValueError(f"width is a number >= 1 of groups that a head reads, got {self.width} of {self.part!r}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=self.shared(server))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.put(client, mail.weights)
        yield from self.local.before_first_round(client, self.loss)
        if self.alone is None:
            yield self.local.fit("model", self.loss)
        else:
            rest = self.staying(client)
            if rest and self.alone:
                yield self.local.fit("model", self.loss, epochs=self.alone, steps=None, only=rest)
            yield self.local.fit("model", self.loss, only=(self.part,))
        yield Mark("personalised")
        return UPDATE(weights=self.shared(client), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            common = self.cohort.mean(server, mail)
            yield from self.put(server, common)
            if self.width is not None:
                # Read back from the server's network, a head of groups would differ in its last bits.
                server.vars["head"] = common
        server.round += 1

    def staying(self, client: Node) -> tuple[str, ...]:
        """Return the names of the parameters that are trained and do not travel."""
        named = client.models["model"].named_parameters()
        return tuple(name for name, p in named if p.requires_grad and not within({name: p}, self.part))

    def put(self, node: Node, weights: Named) -> Steps:
        """Put the weights that travel into a node's network."""
        if self.width is None:
            node.load({**node.weights(), **weights})
        else:
            table = torch.cat([weights["head.weight"], weights["head.bias"].unsqueeze(1)], 1)
            yield from replaced(node, table, self.width, type(self).__name__)

    def shared(self, node: Node) -> Named:
        """Return the weights that travel."""
        if self.width is not None:
            biased_width(node.models["model"], type(self).__name__, self.width)
            table = grouped(head_of(node.models["model"], type(self).__name__), self.width)
            return node.vars.get("head") or {"head.weight": table[:, :-1], "head.bias": table[:, -1]}
        return part_of(node, self.part)
