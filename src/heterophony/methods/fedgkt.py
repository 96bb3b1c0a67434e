"""FedGKT: small networks at the edge send features; a large one at the server learns from them, and teaches back.

Sent by a client: for each of its private rows the features that its network's body gives, the logits, and the label.
No rows, no weights. Features and labels are of single rows: they say much about them.
Sent by the server: its own logits for those rows.

Paper: He, Annavaram and Avestimehr, Group Knowledge Transfer: Federated Learning of Large CNNs at the Edge, NeurIPS
2020. The algorithm with alternating minimisation: the edge's loss is cross-entropy + alpha KL(server || edge), the
server's is cross-entropy + alpha KL(edge || server), at temperature T and times T squared. KL is summed over classes,
mean over the batch.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Built,
    Data,
    Deviation,
    Each,
    Features,
    Global,
    Inbox,
    Kind,
    Labels,
    Logits,
    Mark,
    Message,
    Method,
    Need,
    Node,
    NoStream,
    Note,
    Own,
    Predict,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import Cohort, DeepHead, Nets, Training, answers, cross_entropy, head_of, kl, readable, study

GLOBAL = Kind("global", to="children", logits=Logits)
FEATURES = Kind("features", to="parent", features=Features(rows="labels"), logits=Logits(rows="labels"), labels=Labels)
ONE = Training(lr=1e-3, optimiser="adam", batch=64)

DEVIATIONS = (
    Deviation(
        "server's network",
        "Three hidden layers of 512 units over feature vectors. From Python it may be any that reads features.",
        "The paper's is a large CNN over feature maps of a network cut early. A network here has a body, which gives "
        "a vector, and a head.",
    ),
    Deviation(
        "what is evaluated",
        "the edge networks; of the server's, the table notes accuracy and loss on the features that it was sent",
        "the paper's clients send features of test rows too; test rows never leave a node here",
    ),
    Deviation(
        "alpha",
        "weighs KL in both losses",
        "in the authors' code it weighs KL at the edge, and cross-entropy at the server; both are the same at 1",
    ),
    Deviation(
        "server's logits",
        "of its network after training, in evaluation mode; its optimiser begins anew in each round",
        "the authors' code takes those of the last epoch's batches, in training mode, and keeps the optimiser",
    ),
    Deviation("server's batches", "are drawn from all clients' rows", "the authors' code takes client after client"),
    Deviation("virtual time", "the server's training takes none", "virtual time is that of work on rows of a node"),
)


class FedGKT(Method):
    """Small networks at the edge; a large one at the server learns from their features, and teaches them."""

    roles = ("server", "client")
    kinds = (GLOBAL, FEATURES)
    memory = ("said",)
    models = {"server": {"model": Built(DeepHead, {"edge": Global()})}, "client": {"model": Own()}}
    headline = "edge"
    serves = ("classification",)
    unused = ("cohort.weighted", "cohort.combine", "large.data", "large.initial", "large.refresh", "large.clip")

    alpha: Annotated[float, "weight of KL, at the edge and at the server"] = 1.0
    temperature: Annotated[float, "of KL, at the edge and at the server"] = 3.0
    cohort: Cohort = Cohort()
    local: Training = Training()
    large: Training = ONE

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha >= 0 or not self.temperature > 0:
            raise ValueError(f"alpha is >= 0 and temperature > 0, got {self.alpha} and {self.temperature}")

    def needs(self) -> list[Need]:
        return [*super().needs(), NoStream("teaches each row by what the server said of it a round before")]

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        said = server.vars.get("said", {})
        return [GLOBAL(client, logits=said.get(client, torch.zeros(0, 0))) for client in self.cohort.draw(server)]

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        data = client.data[self.local.data]
        head_of(client.models["model"], "FedGKT")
        yield from self.local.before_first_round(client, cross_entropy)
        if mail.logits.shape == (len(data), data.classes) and len(data):
            yield self.local.fit("model", self.taught, extra={"said": mail.logits}, keep="own")
        else:  # the first time, nothing has been said
            yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("edge")
        features = yield Predict("model.body", self.local.data)
        logits = yield Predict("model", self.local.data)
        return FEATURES(features=features, logits=logits, labels=data.y)

    @on(answers(FEATURES), role="server")
    def learn(self, server: Node, mail: Inbox) -> Steps:
        heard = [m for m in mail if readable(server.models["model"], m.features, m.logits, m.labels)]
        if len(heard) < len(mail):  # a sender may send anything
            yield Note("misfit", len(mail) - len(heard))
        if heard:
            rows = Data(
                x=torch.cat([m.features for m in heard]),
                y=torch.cat([m.labels for m in heard]),
                said=torch.cat([m.logits for m in heard]),
            )
            said = study(server, self.large, self.taught, rows)
            yield Note("server.accuracy", float((said.argmax(-1) == rows.y).float().mean()))
            yield Note("server.loss", float(F.cross_entropy(said, rows.y)))
            parts = torch.split(said, [len(m.labels) for m in heard])
            new = {m.sender: part.clone() for m, part in zip(heard, parts, strict=True)}
            server.vars["said"] = {**server.vars.get("said", {}), **new}
        server.round += 1

    def taught(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss on rows beside which stands what the other side said of them."""
        logits, t = nets["model"](batch.x), self.temperature
        soft = t**2 * kl(batch.said / t, logits / t)
        return {"model": {"ce": F.cross_entropy(logits, batch.y), "kl": self.alpha * soft}}
