"""FedGen: the server trains a generator of features from the clients' heads; the heads learn from what it makes.

Leaves a client: its head after local training, and how many rows of each class it has; with `whole`, its whole network
in the place of the head. Leaves the server: the head of its own network, then the mean of the heads (or of networks),
the generator's weights and the share of each class in all rows that it was told of. No rows, no features, no public
data.
Equations: The algorithm FedGen. A client minimises its cross-entropy and that of its head on features which the
generator makes of labels, drawn by their shares, and of noise. The server minimises the cross-entropy of the mean of
the clients' logits on such features. Heads are linear here, so that this mean is what the mean of the heads tells.
Deviations: heads alone are averaged unless `whole` is set, so that networks may differ, which they mostly do here; the
paper's main algorithm averages the whole network. All begin with one head, since a mean of heads that never were alike
says nothing, and networks of one architecture with one body: with `generated = 0` it is `lg-fedavg`, to the bit. A
generated row stands beside each private row, drawn anew in each round, not in each step. Noise is normal (uniform in
the authors' code), means are by examples. The generator's diversity loss is that of the authors' code for MNIST, and so
are its sizes, steps and batch; its rate (0.0003 there) is ours, it has no BatchNorm, and Adam begins anew in each
round. That code also weighs each head's loss at the server by who has how many rows of a label, gives clients a third
term (KL between predictions from own and from generated features), weighs the second and third by 10, and lets weights
and rates fade: we do not. With `width`, features are in so many groups of neighbours: a generated number stands for all
features of its group, and the common head reads the means of groups; the paper's networks have one width. Heads of
another shape than most are left out; a client whom one reaches that does not fit keeps its own, and says so. The
server's training takes no virtual time; one that diverges begins anew. A client's optimiser begins anew in each round.
Reference: Zhu, Hong and Zhou, Data-Free Knowledge Distillation for Heterogeneous Federated Learning, ICML 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony import (
    Counts,
    Data,
    DataError,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    NetworksByRole,
    Node,
    Own,
    PerClass,
    Round,
    Same,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import (
    Cohort,
    Generator,
    Nets,
    Table,
    Training,
    agreed,
    answers,
    biased_width,
    ce,
    counted,
    cross_entropy,
    generator,
    grouped,
    head_of,
    repeated,
    replaced,
)

# A head is a row a class: what it makes of each feature, and its bias.
GLOBAL = Kind("global", to="children", head=PerClass(rows="shares"), generator=Weights, shares=Counts)
HEAD = Kind("head", to="parent", head=PerClass(rows="counts"), counts=Counts)
MODEL = Kind("model", to="children", weights=Weights("model"), generator=Weights, shares=Counts)
UPDATE = Kind("update", to="parent", weights=Weights("model"), counts=Counts)


class FedGen(Method):
    """Different bodies whose heads are averaged, and learn from features that a generator makes of labels."""

    roles = ("server", "client")
    kinds = (GLOBAL, HEAD, MODEL, UPDATE)
    memory = ("head", "generator", "shares", "shapes", "warned")
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Own(start="alike")}}
    headline = "personalised"

    generated: float = 1.0  # the weight of the loss on generated features
    whole: bool = False  # whether whole networks are averaged, which must be alike
    width: int | None = None  # features are in so many groups; none: taken as they are
    cohort: Cohort = Cohort()
    local: Training = Training()
    generator: Generator = Generator()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.generated >= 0 or (self.width is not None and self.width < 1):
            given = f"{self.generated} and {self.width}"
            raise ValueError(f"generated is a weight >= 0 and width a number >= 1, got {given}")

    def networks(self) -> NetworksByRole:
        return {role: {"model": Same()} for role in self.roles} if self.whole else self.models

    def sends(self) -> tuple[Kind, ...]:
        return (MODEL, UPDATE) if self.whole else (GLOBAL, HEAD)

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        if "model" not in server.slots:
            raise DataError("FedGen's server needs a network: everyone begins with its head, or with all of it")
        known = {"generator": server.vars.get("generator", {})}
        if not self.whole:
            head = self.common(server)
            shares = server.vars.get("shares", torch.zeros(len(head)))
            return GLOBAL(self.cohort.draw(server), head=head, shares=shares, **known)
        if self.wide(server) and "head.weight" not in server.slots["model"].form:
            raise DataError(
                "FedGen's generator learns from heads, but of the network there travels none: share the whole"
            )
        shares = server.vars.get("shares", torch.zeros(0))
        return MODEL(self.cohort.draw(server, "alike"), weights=server.weights(), shares=shares, **known)

    @on(Each(GLOBAL), role="client")
    def take(self, client: Node, mail: Message) -> Steps:
        client.round, width = mail.round, self.wide(client)
        yield from replaced(client, mail.head, width, "FedGen")
        yield from self.local.first(client, cross_entropy)
        yield from self.learn(client, mail)
        own = head_of(client.models["model"], "FedGen")
        return HEAD(head=grouped(own, width), counts=counted(client.data[self.local.data]).float())

    @on(Each(MODEL), role="client")
    def take_whole(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield from self.local.first(client, cross_entropy)
        yield from self.learn(client, mail)
        return UPDATE(weights=client.weights(), counts=counted(client.data[self.local.data]).float())

    def learn(self, client: Node, mail: Message) -> Steps:
        """Local training; with generated features, once there is a generator that fits."""
        data, width = client.data[self.local.data], self.wide(client)
        if self.fitting(mail, data, width):
            labels, noise = self.generator.drawn(mail.shares, len(data), client.rng("generated"))
            own = head_of(client.models["model"], "FedGen")
            layers = {name: tensor.cpu() for name, tensor in mail.generator.items()}
            features = repeated(generator.made(layers, labels, noise), own.in_features).to(own.weight.dtype)
            extra = {"features": features, "labels": labels}
            yield self.local.fit("model", self.both, extra=extra, parts=("model.head",))
        else:
            yield self.local.fit("model", cross_entropy)
        yield Mark("personalised")

    def fitting(self, mail: Message, data: Data, width: int) -> bool:
        """Whether there is a generator for these classes and so many features: what was heard may be anything."""
        fits = len(mail.shares) == data.classes and self.generator.fits(mail.generator, data.classes, width)
        return fits and bool(mail.shares.sum() > 0)

    @on(answers(HEAD), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        tables = agreed(server, {m.sender: Table(m.head, m.counts) for m in mail})
        if tables and tables[0].means.shape[1] > 1:
            examples = [float(table.counts.sum()) for table in tables]
            shares = examples if self.cohort.weighted else None
            head = self.cohort.together([{"head": table.means} for table in tables], shares)["head"]
            if torch.isfinite(head).all():  # a liar's may be huge
                server.vars["head"] = head
                self.teach(server, head, [table.counts for table in tables])
        server.round += 1

    @on(answers(UPDATE, of="alike"), role="server")
    def merge_whole(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(mail, by=[float(m.counts.sum()) for m in mail]))
            own = head_of(server.models["model"], "FedGen")
            counts = [m.counts for m in mail if len(m.counts) == own.out_features]
            self.teach(server, grouped(own, self.wide(server)), counts)
        if server.slots["model"].whole:
            yield Mark("global")
        server.round += 1

    def teach(self, server: Node, head: Tensor, counts: list[Tensor]) -> None:
        """Train the generator from the mean of the heads, with labels as often as clients have them."""
        total = sum((each.double() for each in counts), start=torch.zeros(len(head), dtype=torch.float64))
        server.vars["shares"] = shares = (total / total.sum().clamp_min(1)).float()
        if not shares.sum() > 0:  # nobody says that it has any
            return
        weights, size = server.vars.get("generator", {}), (len(head), head.shape[1] - 1)
        if not self.generator.fits(weights, *size):
            weights = self.generator.fresh(*size, server.rng("layers"))
        trained = self.generator.trained(weights, head, shares, server.rng("generator"))
        sound = all(bool(torch.isfinite(tensor).all()) for tensor in trained.values())
        server.vars["generator"] = trained if sound else {}

    def both(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Of the network on its rows, and of its head on generated `features`, of these `labels`."""
        own, made = nets["model"](batch.x), nets["model.head"](batch.features)
        return {"model": {"ce": ce(own, batch.y), "generated": self.generated * ce(made, batch.labels)}}

    def common(self, server: Node) -> Tensor:
        """The mean of the heads; before there is one, the head of the server's network, as it was drawn."""
        width, own = self.wide(server), head_of(server.models["model"], "FedGen")
        head: Tensor = server.vars["head"] if "head" in server.vars else grouped(own, width)
        return head

    def wide(self, node: Node) -> int:
        """How many numbers are generated for this node's head."""
        return biased_width(node.models["model"], "FedGen", self.width)
