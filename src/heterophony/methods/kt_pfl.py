"""KT-pFL: each client learns a mixture of all predictions of its own, and the server learns who should teach whom.

Leaves a client: its softmax outputs (at a temperature) on public rows that everyone knows by seed. Leaves the server,
to each client: a combination of them by that client's row of the knowledge coefficient matrix c, which stays there.
Equations: Algorithm 1, in its order. Local training and the prediction after it are `train`; the personalised soft
prediction sum_m c_nm s_m is formed in `transfer`, and so is one step of c, with these predictions fixed, down
sum_n KL(sum_m c_nm s_m || s_n) + rho |c - 1/N|^2; distillation by KL(combination || own prediction), mean over the
batch, is `learn`.
Deviations: after its step each row of c is projected on the simplex, so that a combination stays a prediction; the
authors' code takes a softmax of five times c, and a squared error instead of the KL. The step is from the predictions
that were just combined, before distillation: others would have to be sent. Rows of c count alike, not by examples.
Where only some answer, their part of c is a matrix of its own and keeps its share; whoever is new begins at 1/N. The
value of rho is the authors' code's; its temperature is 10, which leaves hardly any gradient, ours is 1; the rate is
ours.
Reference: Zhang, Guo, Ma, Wang, Xu and Wu, Parameterized Knowledge Transfer for Personalized Federated Learning,
NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heterophony import (
    Data,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Own,
    Probabilities,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers, cross_entropy, onto_simplex, soft_ce

ASK = Kind("ask", to="children")
PREDICTIONS = Kind("predictions", to="parent", probabilities=Probabilities("public", "rows.sample"))
PERSONAL = Kind("personal", to="children", probabilities=Probabilities("public", "rows.sample"))


class KTpFL(Method):
    """Different networks learn mixtures of each other's softmax outputs; the server learns the shares."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, PERSONAL)
    memory = ("coefficients",)  # whose they are, and the matrix
    models = {"client": {"model": Own()}}
    headline = "personalised"
    unused = ("cohort.weighted", "distil.initial")
    public = True

    rho: float = 0.7  # how strongly coefficients are held at 1/N
    rate: float = 0.01  # of their step; 0: they stay equal
    temperature: float = 1.0  # of predictions
    rows: PublicRows = PublicRows()
    local: Training = Training()
    distil: Training = Training()
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rho >= 0 or not self.rate >= 0 or not self.temperature > 0:
            given = f"{self.rho}, {self.rate} and {self.temperature}"
            raise ValueError(f"rho and rate are numbers >= 0 and temperature is one > 0, got {given}")

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.first(client, cross_entropy)
        yield self.local.fit("model", cross_entropy)
        yield Mark("local")
        logits = yield self.rows.outputs(client)
        return PREDICTIONS(probabilities=(logits / self.temperature).softmax(-1))

    @on(answers(PREDICTIONS), role="server")
    def transfer(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            names, matrix = known(server, [m.sender for m in mail])
            place = {name: i for i, name in enumerate(names)}
            here = torch.tensor([place[m.sender] for m in mail])
            block = matrix[here][:, here]
            mass = block.sum(1, keepdim=True)
            shares = torch.where(mass > 0, block / mass, 1 / len(mail))
            spoken = torch.stack([m.probabilities.double() for m in mail])
            combined = torch.einsum("nm,mrk->nrk", shares, spoken)
            for m, personal in zip(mail, combined.float(), strict=True):
                yield PERSONAL(m.sender, probabilities=personal)
            slope = divergence_slope(combined, spoken) + 2 * self.rho * (shares - 1 / len(mail))
            matrix[here.unsqueeze(1), here] = mass * onto_simplex(shares - self.rate * slope)
            server.vars["coefficients"] = [names, matrix]
            yield Note("share.own", float(matrix.diagonal().mean()))
        server.round += 1

    @on(Each(PERSONAL), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        rows, extra = self.rows.of(client), {"personal": mail.probabilities.float()}
        yield self.distil.fit("model", self.follow, data="public", rows=rows, extra=extra)
        yield Mark("personalised")

    def follow(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        certain = torch.xlogy(batch.personal, batch.personal).sum(-1).mean()
        return {"model": {"kl": certain + soft_ce(batch.personal, nets["model"](batch.x) / self.temperature)}}


def known(server: Node, senders: Sequence[str]) -> tuple[list[str], Tensor]:
    """Whom the server has heard of and a copy of their coefficients: new ones begin at 1/N, others make room."""
    names, matrix = server.vars.get("coefficients", ([], torch.zeros(0, 0, dtype=torch.float64)))
    both = [*dict.fromkeys([*names, *senders])]
    grown = torch.full((len(both), len(both)), 1 / len(both), dtype=torch.float64)
    grown[: len(names), : len(names)] = matrix * (len(names) / len(both))
    return both, grown


def divergence_slope(combined: Tensor, spoken: Tensor) -> Tensor:
    """The gradient of KL(sum_m c_nm s_m || s_n), mean over rows, by c_nm, but for a constant: c stays on the simplex.

    Probabilities of zero are taken for very small ones.
    """
    ratio = combined.clamp_min(1e-12).log() - spoken.clamp_min(1e-12).log()
    return torch.einsum("nrk,mrk->nm", ratio, spoken) / spoken.shape[1]
