"""RHFL: with labels that may be wrong, different networks learn most from those whose loss falls.

Sent by a client: its softmax outputs on public rows, and its loss on its private rows. No weights, no labels.
Sent by the server: a request to predict; then to each client the mean of the others' outputs, weighted by how far they
are trusted, and the sum of these weights.

Paper: Fang and Ye, Robust Federated Learning with Noisy and Heterogeneous Clients, CVPR 2022. Symmetric cross-entropy
(Wang et al., 2019) on private rows; KL of the others' outputs, weighted by the client's confidence. The confidence is
the softmax of 1 / (K - 1) + eta q_k / sum(q), where q_k is by which share the loss of client k has fallen: as in the
authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Own,
    Predict,
    Probabilities,
    Round,
    Scalar,
    Send,
    Steps,
    on,
)
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers

ASK = Kind("ask", to="children")
PREDICTIONS = Kind("predictions", to="parent", probabilities=Probabilities("public", "rows.sample"), loss=Scalar(low=0))
OTHERS = Kind(
    "others", to="children", probabilities=Probabilities("public", "rows.sample"), trust=Scalar(low=0, high=1)
)
ADAM = Training(lr=1e-3, optimiser="adam", batch=256)

DEVIATIONS = (
    Deviation(
        "exchange",
        "once a round, for all of its public rows",
        "in the authors' code outputs are exchanged anew for every public batch",
    ),
    Deviation(
        "what a client is sent",
        "one weighted mean. The cross-entropy with it has the gradient of the weighted sum of all KL.",
        "others' outputs stay apart in the paper; nobody need know whose they are",
    ),
    Deviation("loss of a client", "of its network in evaluation mode", "the authors' code has training mode there"),
    Deviation(
        "losses that have not fallen",
        "where the shares q sum to nothing or less, all are trusted alike",
        "q / sum(q) would turn round, or grow without bound",
    ),
    Deviation(
        "trust in the first round",
        "1 / K for each of K clients, so that all trusts sum to one in each round",
        "The authors' code has 1 / (K - 1) in the first round. With Adam the step is the same.",
    ),
    Deviation("local epochs", "an option", "the authors' code has as many as make private rows like public ones"),
)


@dataclass(frozen=True)
class SymmetricLoss:
    """Symmetric cross-entropy: `forward` times that of the labels, and `reverse` times that with both sides changed.

    In the second one the logarithm of a label that is 0 counts as that of 0.0001.
    """

    forward: float
    reverse: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        return {name: self.terms(net(batch.x), batch.y) for name, net in nets.items()}

    def terms(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return both terms, as means over the rows."""
        told = F.one_hot(labels, logits.shape[-1]).to(logits).clamp(min=1e-4)
        backwards = -(logits.softmax(-1) * told.log()).sum(-1).mean()
        return {"ce": self.forward * F.cross_entropy(logits, labels), "rce": self.reverse * backwards}


class RHFL(Method):
    """Different networks learn public outputs of others, as far as these are trusted, and labels that may be wrong."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, OTHERS)
    memory = ("losses",)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted", "cohort.combine", "distil.initial")
    public = True

    eta: Annotated[float, "how much a falling loss counts in a client's confidence; 0: all count alike"] = 0.5
    forward: Annotated[float, "weight of the cross-entropy with the labels"] = 0.1
    reverse: Annotated[float, "weight of the reverse cross-entropy, which wrong labels move less"] = 1.0
    rows: PublicRows = PublicRows()
    distil: Training = ADAM
    local: Training = ADAM
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not min(self.eta, self.forward, self.reverse) >= 0:
            given = f"{self.eta}, {self.forward} and {self.reverse}"
            raise ValueError(f"eta, forward and reverse are weights >= 0, got {given}")

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.before_first_round(client, self.symmetric)
        data, loss = client.data[self.local.data], 0.0
        if len(data):
            private = yield Predict("model", self.local.data)
            loss = float(sum(self.symmetric.terms(private, data.y).values()))
        logits = yield self.rows.outputs(client)
        return PREDICTIONS(probabilities=logits.softmax(-1), loss=loss)

    @on(answers(PREDICTIONS), role="server")
    def weigh(self, server: Node, mail: Inbox) -> Steps:
        losses = {m.sender: m.loss for m in mail}
        trust = confidence(losses, server.vars.get("losses", {}), self.eta)
        server.vars["losses"] = {**server.vars.get("losses", {}), **losses}
        for m in mail:
            others = [other for other in mail if other is not m] or [m]
            shares = [trust[other.sender] for other in others]
            mixed = sum(share / sum(shares) * o.probabilities for share, o in zip(shares, others, strict=True))
            yield Note(f"trust.{m.sender}", trust[m.sender])
            yield OTHERS(m.sender, probabilities=mixed, trust=sum(shares) if len(mail) > 1 else 0.0)
        server.round += 1

    @on(Each(OTHERS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        yield self.rows.imitate(client, self.distil, mail.probabilities * mail.trust)
        yield self.local.fit("model", self.symmetric)
        yield Mark("personalised")

    @property
    def symmetric(self) -> SymmetricLoss:
        """Return the loss on private rows."""
        return SymmetricLoss(self.forward, self.reverse)


def confidence(losses: Mapping[str, float], before: Mapping[str, float], eta: float) -> dict[str, float]:
    """Return how far each client is trusted, by which share its loss has fallen; those sum to one."""
    fallen = {c: (before.get(c, loss) - loss) / max(loss, 1e-12) for c, loss in losses.items()}
    total = sum(fallen.values())
    scores = [eta * q / total if total > 0 else 0.0 for q in fallen.values()]
    return dict(zip(losses, torch.tensor(scores, dtype=torch.float64).softmax(0).tolist(), strict=True))
