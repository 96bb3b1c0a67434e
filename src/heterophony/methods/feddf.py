"""FedDF: ensemble distillation for model fusion.

Leaves a client: its weights after local training, and how many examples they come from. Leaves the server: for each
client the fused model of its architecture, after a round that it took part in, or else when it is asked again.
Equations: Algorithm 1 and 3 (heterogeneous: one prototype an architecture). The teacher is the mean of all clients'
logits on unlabelled public rows; the students are the averaged models of each architecture (Eq. 1: KL, batch mean).
Deviations: the number of distillation steps is in epochs over public rows; no early stopping by validation. The server
learns who has which architecture from updates, so a client's first round begins with its initial weights.
Reference: Lin et al., Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS 2020.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from heterophony import (
    Architectures,
    Data,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    Predict,
    Round,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers, combine, cross_entropy, kl

ASK = Kind("ask", to="children")
MODEL = Kind("model", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights, examples=Scalar(low=0))
FUSED = Kind("fused", to="children", weights=Weights("model"))


class FedDF(Method):
    """Weights are averaged within an architecture; what all of them think of public data is distilled into each."""

    roles = ("server", "client")
    kinds = (ASK, MODEL, UPDATE, FUSED)
    memory = ("kin", "informed")  # which of the server's models a client has, and who has its present weights
    models = {"server": {"*": Architectures()}, "client": {"model": Own(start="alike")}}
    headline = "fused"
    unused = ("distil.initial",)
    public = True

    grouped: bool = True  # students start from the average of their architecture, else from their last state
    rows: PublicRows = PublicRows()
    average: Literal["mean", "median", "trimmed"] = "mean"
    distil: Training = Training(lr=1e-3, optimiser="adam", batch=128)
    local: Training = Training()
    cohort: Cohort = Cohort()

    @on(Round, role="server")
    def ask(self, server: Node) -> list[Send]:
        kin, informed = server.vars.get("kin", {}), server.vars.get("informed", [])
        behind: dict[str, list[str]] = {}
        asked = []
        for client in self.cohort.draw(server):
            if client in kin and client not in informed:
                behind.setdefault(kin[client], []).append(client)
            else:
                asked.append(client)
        sends = [MODEL(members, weights=server.weights(slot)) for slot, members in behind.items()]
        return [*sends, ASK(asked)] if asked else sends

    @on(Each(ASK), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        return (yield from self._train(client, mail))

    @on(Each(MODEL), role="client")
    def begin(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        return (yield from self._train(client, mail))

    def _train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.first(client, cross_entropy)
        yield self.local.fit("model", cross_entropy)
        yield Mark("local")
        return UPDATE(weights=client.weights(), examples=len(client.data[self.local.data]))

    @on(answers(UPDATE), role="server")
    def fuse(self, server: Node, mail: Inbox) -> Steps:
        groups: dict[str, list[Message]] = {}
        for m in mail:
            if (slot := _prototype(server, m.weights)) is not None:
                groups.setdefault(slot, []).append(m)
        if groups:
            kin = {m.sender: slot for slot, members in groups.items() for m in members}
            server.vars["kin"] = {**server.vars.get("kin", {}), **kin}
            server.vars["informed"] = list(kin)
            rows = self.rows.of(server)
            before = {slot: server.weights(slot) for slot in groups}
            opinions = []
            for slot, members in groups.items():
                for m in members:
                    server.load(m.weights, slot)
                    opinions.append((yield Predict(slot, "public", rows)))
            teacher = combine(opinions, self.average)
            for slot, members in groups.items():
                averaged = self.cohort.mean(members)
                server.load(averaged if self.grouped or server.round == 0 else before[slot], slot)
                yield self.distil.fit(slot, self.imitate, data="public", rows=rows, extra={"teacher": teacher})
                yield FUSED([m.sender for m in members], weights=server.weights(slot))
        server.round += 1

    @on(Each(FUSED), role="client")
    def take(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        yield Mark("fused")

    def imitate(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        return {slot: {"kl": kl(batch.teacher, net(batch.x))} for slot, net in nets.items()}


def _prototype(server: Node, weights: dict[str, Tensor]) -> str | None:
    """The server's model of the architecture that these weights belong to."""
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    for slot in server.slots:
        if {name: tensor.shape for name, tensor in server.slots[slot].shared().items()} == shapes:
            return slot
    return None
