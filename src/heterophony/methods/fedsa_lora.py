"""FedSA-LoRA: of each adapter the factor `down` is averaged, and `up` stays with its client.

Sent by a client: the factors called `down` after local training, and from how many examples they are.
Sent by the server: to each client the first ranks of the server's `down`.

Paper: Guo, Zeng, Wang, Chen, Gao, Du, Li and Qu, Selective Aggregation for Low-Rank Adaptation in Federated Learning,
ICLR 2025. `down` learns what is common, `up` what is of a client. Both are trained together.
"""

from __future__ import annotations

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
    mean_by_coordinate,
    ranks,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Adapters("model"), examples=Scalar(low=0))
COMMON = ("*.down",)

DEVIATIONS = (
    Deviation(
        "ranks", "may differ: each rank is averaged over those who have it", "the paper has one rank for all clients"
    ),
    Deviation("other parts", "what `cut.also` names stays with its client, too", "the paper trains adapters only"),
)


class FedSALoRA(Method):
    """Adapters of which one factor is averaged; the other one stays, so that everyone has a model of its own."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {
        "server": {"model": Slice(Adapt(), start="alike", share=COMMON)},
        "client": {"model": Slice(Adapt(), start="alike", share=COMMON)},
    }
    headline = "personalised"
    unused = ("cohort.combine",)

    cut: Adapt = Adapt()
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.cut.train) < 2:
            raise ValueError("both factors are trained: leave cut.train out")

    def networks(self) -> NetworksByRole:
        own = Slice(self.cut, start="alike", share=COMMON)
        return {"server": {"model": own}, "client": {"model": own}}

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        groups, whole = by_capacity(server, self.cohort.draw(server)), server.weights()
        return [GLOBAL(to, weights=cut_to(whole, own.rank or self.cut.rank)) for own, to in groups.items()]

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield from self.local.before_first_round(client, self.loss)
        yield self.local.fit("model", self.loss)
        yield Mark("personalised")
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> None:
        if mail:
            own, slices = server.weights(), []
            for m in mail:
                slices.append((m.weights, {name: ranks(name, own[name], len(t)) for name, t in m.weights.items()}))
            server.load(mean_by_coordinate(own, slices, self.cohort.shares(mail)))
        server.round += 1
