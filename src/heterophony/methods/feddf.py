"""FedDF: the models of each architecture are averaged, and what all say of public data is distilled into each average.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: to each client the fused model of its architecture, after a round that it took part in, or else when
it is asked again.

Paper: Lin et al., Ensemble Distillation for Robust Model Fusion in Federated Learning, NeurIPS 2020. Algorithms 1 and 3
(networks that differ: one prototype an architecture); Eq. 1 (KL, mean over the batch). The teacher is the mean of all
clients' logits on unlabelled public rows. The students are the averaged models of each architecture.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from heterophony import (
    Architectures,
    Data,
    Deviation,
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
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers, by_architecture, cross_entropy, kl

ASK = Kind("ask", to="children")
MODEL = Kind("model", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights, examples=Scalar(low=0))
FUSED = Kind("fused", to="children", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "steps",
        "distillation runs for epochs over the public rows, without early stopping",
        "early stopping needs validation data at the server",
    ),
    Deviation(
        "a client's first round",
        "begins with its initial weights; later ones with the present model of its architecture",
        "the server learns from updates who has which architecture",
    ),
)


class FedDF(Method):
    """Weights are averaged within an architecture; what all say of public data is distilled into each average."""

    roles = ("server", "client")
    kinds = (ASK, MODEL, UPDATE, FUSED)
    # kin: which of the server's models has a client's architecture; informed: who has that model's present weights
    memory = ("kin", "informed")
    models = {"server": {"*": Architectures()}, "client": {"model": Own(start="alike")}}
    headline = "fused"
    serves = ("classification",)
    unused = ("distil.initial",)
    public = True

    grouped: Annotated[bool, "students start from the average of their architecture, else from their last state"] = True
    rows: PublicRows = PublicRows()
    distil: Training = Training(lr=1e-3, optimiser="adam", batch=128)
    local: Training = Training()
    cohort: Cohort = Cohort()

    @on(Round, role="server")
    def ask(self, server: Node) -> list[Send]:
        kin = server.vars.get("kin", {})
        informed = server.vars.get("informed", [])
        behind: dict[str, list[str]] = {}
        ready = []
        for client in self.cohort.draw(server):
            if client in kin and client not in informed:
                behind.setdefault(kin[client], []).append(client)
            else:
                ready.append(client)
        sends = [MODEL(members, weights=server.weights(slot)) for slot, members in behind.items()]
        if ready:
            sends.append(ASK(ready))
        return sends

    @on(Each(ASK), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        return (yield from self._train(client, mail))

    @on(Each(MODEL), role="client")
    def begin(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        return (yield from self._train(client, mail))

    def _train(self, client: Node, mail: Message) -> Steps:
        """Train on private data and answer with the weights."""
        client.round = mail.round
        yield from self.local.before_first_round(client, cross_entropy)
        yield self.local.fit("model", cross_entropy)
        yield Mark("local")
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    @on(answers(UPDATE), role="server")
    def fuse(self, server: Node, mail: Inbox) -> Steps:
        groups = by_architecture(server, mail)
        if groups:
            _remember(server, groups)
            rows = self.rows.of(server)
            before = {slot: server.weights(slot) for slot in groups}
            opinions, speakers = [], []
            for slot, members in groups.items():
                for m in members:
                    server.load(m.weights, slot)
                    logits = yield Predict(slot, "public", rows)
                    opinions.append(logits)
                    speakers.append(m)
            teacher = self.cohort.of(server, speakers, opinions)
            for slot, members in groups.items():
                averaged = self.cohort.mean(server, members, start=before[slot])
                server.load(averaged if self.grouped or server.round == 0 else before[slot], slot)
                yield self.distil.fit(slot, self.imitate, data="public", rows=rows, extra={"teacher": teacher})
                yield FUSED([m.sender for m in members], weights=server.weights(slot))
        server.round += 1

    @on(Each(FUSED), role="client")
    def take(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        yield Mark("fused")

    def imitate(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return KL(teacher || student) for each student."""
        return {slot: {"kl": kl(batch.teacher, net(batch.x))} for slot, net in nets.items()}


def _remember(server: Node, groups: dict[str, list[Message]]) -> None:
    """Note each sender's architecture, and that the senders alone will have the present weights."""
    kin = {m.sender: slot for slot, members in groups.items() for m in members}
    server.vars["kin"] = {**server.vars.get("kin", {}), **kin}
    server.vars["informed"] = list(kin)
