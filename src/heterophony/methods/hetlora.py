"""HetLoRA: all have one frozen network, and what travels are low-rank adapters, each client's of a rank it can hold.

Sent by a client: the factors of its adapters after local training, and from how many examples they are.
Sent by the server: to each client the first ranks of the server's factors.

Paper: Cho, Liu, Xu, Fahrezi and Joshi, Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models,
EMNLP 2024. Factors are padded with zeros to the highest rank and averaged; a client counts by the norm of what its
adapters come to (sparsity-weighted aggregation); the server cuts its factors to each client's rank. With equal ranks
and `by = "examples"` it is FedAvg of the adapters (FedIT), to the bit.
"""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from heterophony import (
    Adapters,
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
    Round,
    Scalar,
    Send,
    Slice,
    Steps,
    Weights,
    on,
)
from heterophony.parts import (
    Adapt,
    Cohort,
    Training,
    answers,
    by_capacity,
    cut_to,
    factored,
    mean,
    mean_by_coordinate,
    padded,
    products,
    ranks,
    strength,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Adapters("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "self-pruning",
        "ranks are given, and stay",
        "the paper's clients also lower their rank while they train, by a penalty on the last ranks",
    ),
    Deviation(
        "scale", "one for all ranks (`cut.scale`)", "with alpha / rank, one product would mean different changes"
    ),
    Deviation(
        "layers",
        "all linear and convolutional layers have adapters, but for those of `cut.also`, which are trained as a whole",
        "the paper adapts the attention of language models",
    ),
)
BY = "how much a client counts: by the norm of its change, or by its examples"
RULE = "how factors become one: padded with zeros, by coordinate, or as the nearest factors of the mean product"


class HetLoRA(Method):
    """All have one frozen network; adapters travel, each client's of a rank that it can hold."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("change",)
    models = {"server": {"model": Slice(Adapt(), start="alike")}, "client": {"model": Slice(Adapt(), start="alike")}}
    headline = "global"
    unused = ("cohort.combine",)

    cut: Adapt = Adapt()
    rule: Annotated[Literal["padding", "coordinate", "svd"], RULE] = "padding"
    by: Annotated[Literal["strength", "examples"], BY] = "strength"
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.cut.train) < 2 and (self.rule == "svd" or self.by == "strength"):
            raise ValueError("one factor alone has no product: rule is padding or coordinate, and by is examples")

    def networks(self) -> NetworksByRole:
        own = Slice(self.cut, start="alike", share=(*(f"*.{side}" for side in self.cut.train), *self.cut.also))
        return {"server": {"model": own}, "client": {"model": own}}

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        groups = by_capacity(server, self.cohort.draw(server))
        return [GLOBAL(to, weights=self.of_rank(server, own.rank or self.cut.rank)) for own, to in groups.items()]

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        if client.capacity(client.id) != client.capacity(mail.sender):  # else it is the server's network
            yield Mark("slice")
        yield from self.local.before_first_round(client, self.loss)
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            items = [m.weights for m in mail]
            shares = self.cohort.shares(mail, [strength(i) for i in items] if self.by == "strength" else "examples")
            server.load(self.together(server, items, shares))
        yield Mark("global")
        server.round += 1

    def together(self, server: Node, items: list[Named], shares: list[float] | None) -> dict[str, Tensor]:
        """Return the server's factors: what those of all clients are together."""
        own = server.weights()
        if self.rule == "padding":
            return mean([padded(item, own) for item in items], shares)
        places = []
        for item in items:
            held = {name: tensor.shape[name.rpartition(".")[2] == "up"] for name, tensor in item.items()}
            places.append({name: ranks(name, own[name], held[name]) for name in item})
        merged = mean_by_coordinate(own, list(zip(items, places, strict=True)), shares)
        if self.rule == "svd":
            change = mean([products(item) for item in items], shares)
            server.vars["change"] = change
            merged |= factored(change, own)
        return merged

    def of_rank(self, server: Node, rank: int) -> dict[str, Tensor]:
        """Return the factors with which a client of this rank begins."""
        own = cut_to(server.weights(), rank)
        if "change" in server.vars:
            own |= factored(server.vars["change"], own)
        return own
