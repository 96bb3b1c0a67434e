"""FedMA: a layer a round, units of the clients' networks that do the same are found and averaged.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: to each client its own weights, in which the layers that are done are the common ones, or the
common model. Which layer is next.

Paper: Wang, Yurochkin, Sun, Papailiopoulos and Khazaeni, Federated Learning with Matched Averaging, ICLR 2020.
Algorithm 1: units of a layer are matched with those of the mean by the assignment of least squared distance (Eq. 2),
and averaged. Clients put the inputs of the next layer in the new order, hold what is done, and train the rest. The last
layer is averaged by examples. Then it begins anew from the common model (FedMA with communication).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

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
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Layer, Training, answers, chain, mean, orders, reordered, task_loss, units

LAYER = Kind("layer", to="children", weights=Weights("model"), number=Scalar(low=0))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "size of layers",
        "as in the network that is given: each unit has one partner",
        "The paper's layers grow by a Beta-Bernoulli process. Here all have one network, whose shape is fixed.",
    ),
    Deviation(
        "start",
        "all begin alike",
        "In the paper each begins by itself, and units that match nobody's stay. Here each has a partner, so that the "
        "mean of many unlike starts would be next to nothing.",
    ),
    Deviation(
        "mean",
        "plain, by examples",
        "the paper's is that of a Gaussian posterior, which is pulled a little towards zero",
    ),
    Deviation(
        "what travels",
        "all weights in each round, already in the new order",
        "the paper sends a layer and its order; then nobody can be missed, and nobody can join, within a pass",
    ),
    Deviation(
        "who was not heard within a pass",
        "goes on with the common model, whose later layers are matched as well",
        "its own weights are not known at the server",
    ),
)


class FedMA(Method):
    """FedAvg that averages units which do the same: clients' units are matched, one layer a round.

    Of networks with one layer it is FedAvg, to the bit, where all begin alike.
    """

    roles = ("server", "client")
    kinds = (LAYER, UPDATE)
    memory = ("own", "chain")
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "global"
    unused = ("local.initial", "cohort.combine")

    sweeps: Annotated[int, "how often each client is matched anew with the mean of the others"] = 1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sweeps < 0:
            raise ValueError(f"sweeps is a number >= 0, got {self.sweeps}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        own, common = server.vars.get("own", {}), server.weights()
        number = server.round % len(layers(server))
        return [LAYER(c, weights=own.get(c, common), number=number) for c in self.cohort.draw(server)]

    @on(Each(LAYER), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.check(client)
        if mail.round:  # the first pass begins with networks of the clients' own
            client.load(mail.weights)
        done = {name for layer in layers(client)[: int(mail.number)] for name in layer.tensors}
        named = client.models["model"].named_parameters()
        rest = tuple(name for name, p in named if name not in done and p.requires_grad)
        yield self.local.fit("model", self.loss, only=rest if done else None)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def check(self, client: Node) -> Steps:
        """Raise unless units can change places: a network that is no chain says something else then."""
        if "chain" in client.vars:
            return
        own, known = client.weights(), layers(client)
        turned: Named = own
        draw = client.rng("units")
        for number in range(len(known) - 1):
            order = torch.randperm(len(own[known[number].weight]), generator=draw)
            turned = reordered(turned, known, number, order)
        some = torch.arange(min(4, self.local.examples(client)))
        before = yield Predict("model", self.local.data, rows=some)
        client.load(turned)
        after = yield Predict("model", self.local.data, rows=some)
        client.load(own)
        if not torch.allclose(before, after, rtol=1e-3, atol=1e-4):
            raise ValueError("fedma needs layers that follow one another; this network has others")
        client.vars["chain"] = True

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        known = layers(server)
        number = server.round % len(known)
        if mail:
            models: list[Named] = [m.weights for m in mail]
            shares = self.cohort.shares(mail) or [1.0] * len(mail)
            server.vars["own"] = {}
            for at in range(number, len(known)):
                models = self.matched(known, at, models, shares)
                if at == number < len(known) - 1:
                    done = {name for layer in known[: at + 1] for name in layer.tensors}
                    common = mean(models, shares)
                    server.vars["own"] = {
                        m.sender: {**own, **{name: common[name] for name in done}}
                        for m, own in zip(mail, models, strict=True)
                    }
            server.load(mean(models, shares))
        yield Mark("global")
        server.round += 1

    def matched(
        self, known: Sequence[Layer], number: int, models: Sequence[Named], shares: Sequence[float]
    ) -> list[Named]:
        """Return the models with a layer's units in one order; the last layer's stand for the answers, and stay."""
        if number == len(known) - 1:
            return list(models)
        found = orders([units(weights, known[number]) for weights in models], shares, self.sweeps)
        return [reordered(w, known, number, order) for w, order in zip(models, found, strict=True)]


def layers(node: Node) -> list[Layer]:
    """Return the layers of a node's network."""
    weights: Mapping[str, Any] = node.weights()
    return chain(node.models["model"], list(weights))
