"""FedPer: the first layers of a network are averaged, the last ones stay with each client.

Leaves a client: the weights of its network's `part` (the body, unless set) after local training, and from how many
examples they are. Its other layers never leave it.
Equations: the algorithms FedPer-Server and FedPer-Client; both parts are trained together, the mean is by examples.
Deviations: all clients start from one network, personal layers included; the paper draws these at random for each.
Float buffers (BatchNorm's statistics) are averaged with the layers that they belong to. The server has no model that
could be evaluated: the layers that it does not get have learnt nothing there. With the whole as `part` it is FedAvg, to
the bit; with the head it is `lg-fedavg`; with `alone` it is `fedrep`. Only what travels need be alike: where the rest
of networks differs, those of one architecture start alike, and all with the server's part.
Reference: Arivazhagan et al., Federated Learning with Personalization Layers, 2019.
"""

from __future__ import annotations

import torch

from heterophony import (
    DataError,
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
    within,
)
from heterophony.parts import Cohort, Training, answers, biased_width, cross_entropy, grouped, head_of, replaced

PART = Part("model", part="part", width="width")
GLOBAL = Kind("global", to="children", weights=PART)
UPDATE = Kind("update", to="parent", weights=PART, examples=Scalar(low=0))


class FedPer(Method):
    """A part of the network is averaged; everyone has the rest, and so a model, of its own."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("head",)
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"

    part: str = "body"  # the sub-module that travels
    width: int | None = None  # features of a head that travels are in so many groups; none: taken as they are
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = cross_entropy
    alone: int | None = None  # epochs in which only what stays is trained, before only the part is; None: both together

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
        yield from self.local.first(client, self.loss)
        if self.alone is None:
            yield self.local.fit("model", self.loss)
        else:
            named = client.models["model"].named_parameters()
            rest = tuple(name for name, p in named if p.requires_grad and not within({name: p}, self.part))
            if rest and self.alone:
                yield self.local.fit("model", self.loss, epochs=self.alone, steps=None, only=rest)
            yield self.local.fit("model", self.loss, only=(self.part,))
        yield Mark("personalised")
        return UPDATE(weights=self.shared(client), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            common = self.cohort.mean(mail)
            yield from self.put(server, common)
            if self.width is not None:  # a head of groups would change in its last bits in the server's network
                server.vars["head"] = common
        server.round += 1

    def put(self, node: Node, weights: Named) -> Steps:
        """Put what travels in its place."""
        if self.width is None:
            node.load({**node.weights(), **weights})
        else:
            table = torch.cat([weights["head.weight"], weights["head.bias"].unsqueeze(1)], 1)
            yield from replaced(node, table, self.width, type(self).__name__)

    def shared(self, node: Node) -> Named:
        """The weights that travel."""
        if self.width is not None:
            biased_width(node.models["model"], type(self).__name__, self.width)
            table = grouped(head_of(node.models["model"], type(self).__name__), self.width)
            return node.vars.get("head") or {"head.weight": table[:, :-1], "head.bias": table[:, -1]}
        own = node.weights()
        if not (found := within(own, self.part)):
            known = ", ".join(dict.fromkeys(name.partition(".")[0] for name in own))
            raise DataError(f"part = {self.part!r}, but of the network there travel only {known}: set part")
        return found
