"""FedGen: the server trains a generator of features from the clients' heads; the heads learn from what it makes.

Sent by a client: its head after local training, and how many rows of each class it has. With `whole`, its whole network
in the place of the head. No rows and no features.
Sent by the server: the head of its own network, and from the second round on the mean of the heads. With it go the
generator's weights, and the share of each class in all rows that it was told of. With `whole`, networks in the place of
heads.

Paper: Zhu, Hong and Zhou, Data-Free Knowledge Distillation for Heterogeneous Federated Learning, ICML 2021. The
algorithm FedGen. A client minimises its cross-entropy and that of its head on features which the generator makes of
labels, drawn by their shares, and of noise. The server minimises the cross-entropy of the mean of the clients' logits
on such features. Heads are linear here, so that this mean is what the mean of the heads tells.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from heterophony import (
    Counts,
    DataError,
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
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
    ClassMeans,
    Cohort,
    Generator,
    Training,
    answers,
    biased_width,
    counted,
    grouped,
    head_of,
    of_one_shape,
    replaced,
)

# A head is a row a class: what it makes of each feature, and its bias.
GLOBAL = Kind("global", to="children", head=PerClass(rows="shares"), generator=Weights, shares=Counts)
HEAD = Kind("head", to="parent", head=PerClass(rows="counts"), counts=Counts)
MODEL = Kind("model", to="children", weights=Weights("model"), generator=Weights, shares=Counts)
UPDATE = Kind("update", to="parent", weights=Weights("model"), counts=Counts)
WIDTH = "features are in so many groups; none: taken as they are"
GENERATED = "the weight of the loss on generated features"

DEVIATIONS = (
    Deviation(
        "what is averaged",
        "heads alone, by examples; whole networks with `whole = true`",
        "our participants' networks mostly differ; the paper's main algorithm averages the whole network",
    ),
    Deviation(
        "start",
        "all begin with the head of the server's network, networks of one architecture with one body",
        "a mean of heads that never were alike says nothing; with `generated = 0` it is `lg-fedavg`, to the bit",
    ),
    Deviation(
        "optimiser",
        "a client's begins anew in each round",
        "as in `lg-fedavg`: momentum says nothing of the head that was put in",
    ),
    Deviation(
        "generated rows",
        "one beside each private row, drawn anew in each round",
        "work orders carry columns of the rows; the paper draws in each step, which is the same for one local epoch",
    ),
    Deviation(
        "server's loss",
        "cross-entropy of the mean of logits (of linear heads, what the mean head tells), and the diversity loss of "
        "the authors' code for MNIST",
        "The paper has the cross-entropy of the mean. The authors' code weighs each head's own cross-entropy by its "
        "rows of the label. The diversity loss is the code's.",
    ),
    Deviation(
        "clients' loss",
        "cross-entropy on own rows and, weighted by `generated` (1), on generated ones",
        "the authors' code adds KL between predictions from own and generated features, weighs both by 10 and lets "
        "these weights and rates fade",
    ),
    Deviation(
        "generator",
        "Noise 32, hidden 256, 50 steps of 32 labels, as in the authors' code for MNIST. The rate is 0.005, noise "
        "is normal, there is no BatchNorm, and Adam begins anew in each round. A generator that diverges begins "
        "anew. Its training takes no virtual time.",
        "At the code's rate of 0.0003 it needs several rounds for a head that stands still, and ours have few. "
        "Noise is normal in the paper, uniform in the code.",
    ),
    Deviation(
        "width",
        "`width` has features in groups of neighbours. A generated number stands for all of a group, and the common "
        "head reads the means of groups. It is off unless set.",
        "As for fedproto: the paper's networks have one width.",
    ),
    Deviation(
        "heads that do not fit",
        "heads of another shape than most are left out; a client that gets one keeps its own, and says so",
        "what is heard may be anything; the paper's networks have one width",
    ),
)


class FedGen(Method):
    """Different bodies whose heads are averaged, and learn from features that a generator makes of labels."""

    roles = ("server", "client")
    kinds = (GLOBAL, HEAD)
    memory = ("head", "generator", "shares", "shapes", "warned")
    models = {"server": {"model": Same(start="alike")}, "client": {"model": Own(start="alike")}}
    headline = "personalised"
    serves = ("classification",)

    generated: Annotated[float, GENERATED] = 1.0
    width: Annotated[int | None, WIDTH] = None
    cohort: Cohort = Cohort()
    local: Training = Training()
    generator: Generator = Generator()

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.generated, self.width)

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        check_network(server)
        head = self.common(server)
        shares = server.vars.get("shares", torch.zeros(len(head)))
        return GLOBAL(self.cohort.draw(server), head=head, shares=shares, generator=server.vars.get("generator", {}))

    @on(Each(GLOBAL), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        client.round, width = mail.round, wide(client, self.width)
        yield from replaced(client, mail.head, width, "FedGen")
        yield from self.generator.study(client, mail, self.local, self.generated, width)
        own = head_of(client.models["model"], "FedGen")
        return HEAD(head=grouped(own, width), counts=counted(client.data[self.local.data]).float())

    @on(answers(HEAD), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        tables = of_one_shape(server, {m.sender: ClassMeans(m.head, m.counts) for m in mail})
        heads = [table.means for table in tables.values()]
        if heads and heads[0].shape[1] > 1:
            heard = [m for m in mail if m.sender in tables]
            examples = [float(table.counts.sum()) for table in tables.values()]
            shares = examples if self.cohort.weighted else None
            head = self.cohort.together(server, heard, [{"head": each} for each in heads], shares)["head"]
            if torch.isfinite(head).all():  # a liar's may be huge
                server.vars["head"] = head
                self.generator.teach(server, head, [table.counts for table in tables.values()])
        server.round += 1

    def common(self, server: Node) -> Tensor:
        """Return the mean of the heads; before there is one, the head of the server's network, as it was drawn."""
        width, own = wide(server, self.width), head_of(server.models["model"], "FedGen")
        head: Tensor = server.vars["head"] if "head" in server.vars else grouped(own, width)
        return head


class FedGenWhole(Method):
    """Whole networks are averaged, and their heads learn from features that a generator makes of labels."""

    roles = ("server", "client")
    kinds = (MODEL, UPDATE)
    memory = ("generator", "shares")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "personalised"
    serves = ("classification",)

    generated: Annotated[float, GENERATED] = 1.0
    width: Annotated[int | None, WIDTH] = None
    cohort: Cohort = Cohort()
    local: Training = Training()
    generator: Generator = Generator()

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.generated, self.width)

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        check_network(server)
        wide(server, self.width)  # raises for a network that no generator can be trained from
        if "head.weight" not in server.slots["model"].form:
            raise DataError(
                "FedGen's generator learns from heads, but the network's head does not travel: share the whole network"
            )
        known = {"shares": server.vars.get("shares", torch.zeros(0)), "generator": server.vars.get("generator", {})}
        return MODEL(self.cohort.draw(server, "alike"), weights=server.weights(), **known)

    @on(Each(MODEL), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield from self.generator.study(client, mail, self.local, self.generated, wide(client, self.width))
        return UPDATE(weights=client.weights(), counts=counted(client.data[self.local.data]).float())

    @on(answers(UPDATE, of="alike"), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail, by=[float(m.counts.sum()) for m in mail]))
            own = head_of(server.models["model"], "FedGen")
            counts = [m.counts for m in mail if len(m.counts) == own.out_features]
            self.generator.teach(server, grouped(own, wide(server, self.width)), counts)
        if server.slots["model"].whole:
            yield Mark("global")
        server.round += 1


WHOLE = "whether whole networks are averaged, which must be alike"


def fedgen(whole: Annotated[bool, WHOLE] = False, **options: Any) -> FedGen | FedGenWhole:
    """Different bodies whose heads are averaged, and learn from features that a generator makes of labels."""
    return FedGenWhole(**options) if whole else FedGen(**options)


# -- what both have in common ----------------------------------------------------------------------------------
def check(generated: float, width: int | None) -> None:
    """Raise where an option is out of its range."""
    if not generated >= 0 or (width is not None and width < 1):
        raise ValueError(f"generated is a weight >= 0 and width a number >= 1, got {generated} and {width}")


def check_network(server: Node) -> None:
    """Raise where the server has no network."""
    if "model" not in server.slots:
        raise DataError("FedGen's server needs a network: everyone begins with its head, or with all of it")


def wide(node: Node, width: int | None) -> int:
    """Return how many numbers are generated for this node's head."""
    return biased_width(node.models["model"], "FedGen", width)
