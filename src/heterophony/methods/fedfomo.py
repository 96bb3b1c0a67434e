"""FedFomo: everyone has its own model, and moves it towards those of others that do better on its rows.

Sent by a client: its weights after local training, and what share each model that it was sent had in its step.
Sent by the server: the weights of some other clients' models, as these sent them. Nobody is told whose they are.

Paper: Zhang, Sapra, Fidler, Yeung and Alvarez, Personalized Federated Learning with First Order Model Optimization,
ICLR 2021. The weight of another's model theta_n is the loss of one's own model theta less that of theta_n, over
|theta_n - theta|, or 0 where this is negative. Weights are divided by their sum, and theta moves by the sum of weight
times (theta_n - theta). The server sends the models that have had the largest weights at that client so far, or, with
probability `explore`, any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch

from heterophony import (
    Counts,
    Deviation,
    Each,
    Family,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Named,
    Need,
    Node,
    Note,
    Round,
    Same,
    Send,
    Steps,
    Validation,
    Weights,
    family,
    members_of,
    on,
)
from heterophony.parts import (
    Cohort,
    Training,
    answers,
    difference,
    loss_on,
    norm,
    shifted,
    task_loss,
    update_of,
)

MODELS = Kind("models", to="children", weights=Family("model", many="downloads", fewer=True))
UPDATE = Kind("update", to="parent", weights=Weights("model"), shares=Counts)

DEVIATIONS = (
    Deviation(
        "rows that judge",
        "the private rows that it trains on; `judge = validation` takes the setting's validation rows",
        "the paper holds back a part of each client's rows; a setting need not",
    ),
    Deviation(
        "what the server adds up",
        "weights divided by their sum",
        "those of different clients and rounds then compare, and stay finite",
    ),
    Deviation(
        "what is compared",
        "another's model with one's own as it is now; the gain over the norm of the difference of all weights",
        "The authors' code has four models to compare with (`baseline_model`; ours is `current`) and three distances: "
        "the l1 norm, the squared l2 norm, and a sum of tensors' norms.",
    ),
    Deviation(
        "explore",
        "stays the same in all rounds, and decides about all models of a round at once",
        "the paper lets it fade; the authors' code decides for each model",
    ),
    Deviation(
        "own model",
        "is not sent back to its client",
        "the client has it; its difference from itself moves nothing",
    ),
)


class FedFomo(Method):
    """Everyone keeps its own model, and moves it towards other clients' models that do better on its rows.

    With `downloads = 0` it is solo without momentum, to the bit.
    """

    roles = ("server", "client")
    kinds = (MODELS, UPDATE)
    memory = ("known", "liked", "sent")
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Same(start="alike")}}
    headline = "personalised"
    unused = ("local.initial", "cohort.weighted", "cohort.combine")

    downloads: Annotated[int, "M: models of others that a client is sent in a round, at most"] = 5
    explore: Annotated[float, "epsilon: how often the models that are sent are drawn at random"] = 0.3
    judge: Annotated[Literal["train", "validation"], "rows on which a client compares models"] = "train"
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.downloads < 0 or not 0 <= self.explore <= 1:
            given = f"{self.downloads} and {self.explore}"
            raise ValueError(f"downloads is a number >= 0 and explore is in [0, 1], got {given}")

    def needs(self) -> list[Need]:
        judging: list[Need] = [Validation("judge = 'validation'")] if self.judge == "validation" else []
        return [*super().needs(), *judging]

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        known, liked = server.vars.get("known", {}), server.vars.get("liked", {})
        sent, sends = {}, []
        for client in self.cohort.draw(server):
            others = [name for name in known if name != client]
            sent[client] = self.chosen(server, client, others, liked.get(client, {}))
            sends.append(MODELS(client, weights=family([known[name] for name in sent[client]])))
        server.vars["sent"] = sent
        return sends

    def chosen(self, server: Node, client: str, others: Sequence[str], liked: Mapping[str, float]) -> list[str]:
        """Return whose models a client is sent. Among those that it likes alike, it is chance."""
        draw = server.rng(f"for {client}")
        explores = float(torch.rand(1, generator=draw)) < self.explore
        order = [others[i] for i in torch.randperm(len(others), generator=draw).tolist()]
        if not explores:
            order.sort(key=lambda name: -liked.get(name, 0.0))
        return order[: self.downloads]

    @on(Each(MODELS), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        others = members_of(mail.weights)
        shares = yield from self.shares(client, [others[i] for i in range(len(others))])
        own = moved = client.weights()
        for i, share in enumerate(shares):
            if share:
                moved = shifted(moved, difference(others[i], own), share)
        client.load(moved)
        yield Note("models.better", sum(share > 0 for share in shares))
        yield self.local.fit("model", task_loss)
        yield Mark("personalised")
        return UPDATE(weights=client.weights(), shares=torch.tensor(shares))

    def shares(self, client: Node, others: Sequence[Named]) -> Steps:
        """Return how much each of the others' models counts; the client's own stays as it is."""
        if not others:
            return []
        own, weights = client.weights(), []
        loss = yield from loss_on(client, self.judge)
        for other in others:
            client.load(other)
            gain = loss - (yield from loss_on(client, self.judge))
            weights.append(max(0.0, gain / max(norm(update_of(client, other, own)), 1e-12)))
        client.load(own)
        total = sum(weights)
        return [weight / total if total else 0.0 for weight in weights]

    @on(answers(UPDATE), role="server")
    def keep(self, server: Node, mail: Inbox) -> None:
        known, liked = dict(server.vars.get("known", {})), dict(server.vars.get("liked", {}))
        for m in mail:
            known[m.sender] = m.weights
            so_far = dict(liked.get(m.sender, {}))
            for name, share in zip(server.vars["sent"].get(m.sender, ()), m.shares.tolist(), strict=False):
                so_far[name] = so_far.get(name, 0.0) + share
            liked[m.sender] = so_far
        server.vars.update(known=known, liked=liked)
        server.round += 1
