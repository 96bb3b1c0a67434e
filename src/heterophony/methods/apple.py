"""APPLE: everyone predicts with a mixture of all clients' core models, and learns its core and the shares together.

Sent by a client: its core model after local training.
Sent by the server: the core models of others, as these sent them, and whose they are.

Paper: Luo and Wu, Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning, IJCAI 2022.
Algorithm 1. A client's model is the sum of p_j w_j over all cores w_j. With each batch it takes the gradient G of its
loss at that sum. Its own core goes down p_i G. Each share p_j goes down <G, w_j> + lambda mu (p_j - p0_j). lambda falls
from one to zero over the first rounds, as a half cosine wave. p0_j are the clients' shares of all rows, and p begins as
p0.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch

from heterophony import (
    Counts,
    Deviation,
    Each,
    Family,
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
    Rows,
    Same,
    Scalar,
    Steps,
    Weights,
    family,
    members_of,
    on,
)
from heterophony.parts import Cohort, Training, answers, dot, shifted, task_loss

CORES = Kind("cores", to="children", weights=Family("model", many="downloads", fewer=True), who=Rows, examples=Counts)
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0, high=2**31))
OWN = "own"  # a client's own core among the others, which have numbers

DEVIATIONS = (
    Deviation(
        "rates",
        "`local.lr` moves the core, `share_lr` the shares",
        "the paper has two rates too; a code of others multiplies the first by the number of clients",
    ),
    Deviation(
        "<G, w_j>",
        "the sum over all parameters, as the paper has it",
        "a code of others takes means, by which shares move a hundred thousand times less",
    ),
    Deviation(
        "local training",
        "plain steps of SGD at the rate of the round: without momentum, decay and clipping",
        "the core's gradient is the mixture's, times its share",
    ),
    Deviation(
        "p0",
        "The shares of rows among the cores that a client has. When there are new ones, all shares begin there anew.",
        "In the paper all clients are there from the first round. Here others may come to be heard later.",
    ),
    Deviation(
        "downloads",
        "A client is sent at most `downloads` cores, drawn at random. Of the others it keeps what it was sent last.",
        "The paper has a budget too, and spends it on those with large shares.",
    ),
)


class APPLE(Method):
    """Everyone mixes all clients' core models by shares that it learns, together with its own core, which travels."""

    roles = ("server", "client")
    kinds = (CORES, UPDATE)
    memory = ("known", "examples", "cores", "rows", "shares")
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"
    unused = (
        "local.initial", "local.momentum", "local.nesterov", "local.weight_decay", "local.optimiser", "local.clip",
        "cohort.weighted", "cohort.combine",
    )  # fmt: skip

    mu: Annotated[float, "how strongly shares are held near those of rows, at first"] = 0.1
    share_lr: Annotated[float, "learning rate of the shares"] = 0.001
    fade: Annotated[int, "L: rounds in which the hold on the shares falls to nothing"] = 20
    downloads: Annotated[int, "M: core models of others that a client is sent in a round, at most"] = 10
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0 or not self.share_lr >= 0 or self.fade < 0 or self.downloads < 0:
            given = f"{self.mu}, {self.share_lr}, {self.fade} and {self.downloads}"
            raise ValueError(f"mu, share_lr, fade and downloads are numbers >= 0, got {given}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Steps:
        known, examples = server.vars.get("known", {}), server.vars.get("examples", {})
        place = {name: i for i, name in enumerate(server.children)}
        for client in self.cohort.draw(server):
            others = [name for name in known if name != client]
            drawn = torch.randperm(len(others), generator=server.rng(f"for {client}"))[: self.downloads]
            chosen = [others[i] for i in drawn.sort().values.tolist()]
            yield CORES(
                client,
                weights=family([known[name] for name in chosen]),
                who=torch.tensor([place[name] for name in chosen], dtype=torch.int64),
                examples=torch.tensor([examples[name] for name in chosen], dtype=torch.float32),
            )

    @on(Each(CORES), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        told, others = client.vars.get("cores", {}), members_of(mail.weights)
        heard = {str(who): others[i] for i, who in enumerate(mail.who.tolist()) if i in others}
        cores: dict[str, Named] = {OWN: told.get(OWN) or client.weights(), **told, **heard}
        rows = {**client.vars.get("rows", {}), **dict(zip(heard, mail.examples.tolist(), strict=False))}
        rows = {name: rows.get(name, 0.0) for name in cores} | {OWN: float(self.local.examples(client))}
        start = {name: n / max(1.0, sum(rows.values())) for name, n in rows.items()}
        shares = client.vars.get("shares", {})
        if shares.keys() != cores.keys():
            shares = start
        own, rate, hold = cores[OWN].keys(), self.local.at(client).lr, self.mu * self.hold(client.round)
        for batch in self.local.batches(client):
            client.load(_mixture(cores, shares))
            fitted = yield self.local.fit(
                "model", self.loss, rows=batch, batch=None, epochs=1, steps=None, answer="gradient"
            )
            slope = {name: tensor for name, tensor in fitted.gradient.items() if name in own}
            steps = {
                name: float(dot(slope, core)) + hold * (shares[name] - start[name]) for name, core in cores.items()
            }
            cores[OWN] = shifted(cores[OWN], slope, -rate * shares[OWN])
            shares = {name: share - self.share_lr * steps[name] for name, share in shares.items()}
        client.load(_mixture(cores, shares))
        client.vars.update(cores=cores, rows=rows, shares=shares)
        yield Note("share.own", shares[OWN])
        yield Mark("personalised")
        return UPDATE(weights=cores[OWN], examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def keep(self, server: Node, mail: Inbox) -> None:
        for name, field in (("known", "weights"), ("examples", "examples")):
            server.vars[name] = {**server.vars.get(name, {}), **{m.sender: getattr(m, field) for m in mail}}
        server.round += 1

    def hold(self, round: int) -> float:
        """Return lambda: how much of the hold on the shares is left."""
        return (math.cos(math.pi * round / self.fade) + 1) / 2 if round < self.fade else 0.0


def _mixture(cores: dict[str, Named], shares: dict[str, float]) -> Named:
    """Return the sum of shares times cores, one's own first."""
    found = {name: shares[OWN] * tensor for name, tensor in cores[OWN].items()}
    for who, core in cores.items():
        if who != OWN:
            found = shifted(found, core, shares[who])
    return found
