"""KT-pFL: each client learns a mixture of all predictions of its own; the server learns who should teach whom.

Sent by a client: its softmax outputs, at a temperature, on public rows that everyone knows by the seed. No weights.
Sent by the server: to each client a combination of these outputs, by that client's row of the knowledge coefficient
matrix c. The matrix itself stays at the server.

Paper: Zhang, Guo, Ma, Wang, Xu and Wu, Parameterized Knowledge Transfer for Personalized Federated Learning, NeurIPS
2021. Algorithm 1, in its order. `train` is local training and the prediction after it. `transfer` forms the
personalised soft predictions sum_m c_nm s_m. With these fixed, it also takes one step of c, down
sum_n KL(sum_m c_nm s_m || s_n) + rho |c - 1/N|^2. `learn` is distillation, by KL(combination || own prediction), mean
over the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
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

DEVIATIONS = (
    Deviation(
        "c",
        "each row is projected on the simplex after its step",
        "a combination must stay a prediction; the authors' code takes a softmax of five times c instead",
    ),
    Deviation(
        "c's step",
        "Down the KL divergence, from the predictions that were just combined, before distillation. Rows count alike.",
        "The authors' code has a mean squared error. Predictions after distillation would have to be sent too. "
        "Weights by examples would only scale a row's rate against rho.",
    ),
    Deviation(
        "defaults",
        "rho 0.7, temperature 1, rate 0.01",
        "rho is that of the authors' code. Its temperature is 10, without the usual factor of its square, which "
        "leaves hardly any gradient. The rate is ours.",
    ),
    Deviation(
        "absent clients",
        "Their coefficients stay. The part of c among those who answer is a matrix of its own, and keeps its share. "
        "Newcomers begin at 1/N.",
        "The paper's clients are all there from the start.",
    ),
)


class KTpFL(Method):
    """Networks differ and learn mixtures of each other's softmax outputs; the server learns the shares."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, PERSONAL)
    memory = ("coefficients",)  # whose they are, and the matrix
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted", "cohort.combine", "distil.initial")
    public = True

    rho: Annotated[float, "how strongly the coefficients are held at 1/N"] = 0.7
    rate: Annotated[float, "learning rate of the coefficients; 0: they stay equal"] = 0.01
    temperature: Annotated[float, "temperature of the predictions"] = 1.0
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
        yield from self.local.before_first_round(client, cross_entropy)
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
            # c among those who have answered, as shares of one.
            block = matrix[here][:, here]
            mass = block.sum(1, keepdim=True)
            shares = torch.where(mass > 0, block / mass, 1 / len(mail))
            # The personalised soft predictions, sum_m c_nm s_m.
            spoken = torch.stack([m.probabilities.double() for m in mail])
            combined = torch.einsum("nm,mrk->nrk", shares, spoken)
            for m, personal in zip(mail, combined.float(), strict=True):
                yield PERSONAL(m.sender, probabilities=personal)
            # One step of c.
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
        """Return KL(combination || own prediction), mean over the batch."""
        logits = nets["model"](batch.x) / self.temperature
        certain = torch.xlogy(batch.personal, batch.personal).sum(-1).mean()
        return {"model": {"kl": certain + soft_ce(batch.personal, logits)}}


def known(server: Node, senders: Sequence[str]) -> tuple[list[str], Tensor]:
    """Return the names of all whom the server has heard of, and a copy of their coefficients.

    New ones begin at 1/N; the coefficients of the others shrink to make room.
    """
    names, matrix = server.vars.get("coefficients", ([], torch.zeros(0, 0, dtype=torch.float64)))
    both = [*dict.fromkeys([*names, *senders])]
    grown = torch.full((len(both), len(both)), 1 / len(both), dtype=torch.float64)
    grown[: len(names), : len(names)] = matrix * (len(names) / len(both))
    return both, grown


def divergence_slope(combined: Tensor, spoken: Tensor) -> Tensor:
    """Return the gradient of KL(sum_m c_nm s_m || s_n), mean over rows, by c_nm.

    A constant is left out: c stays on the simplex, so that it changes nothing. Probabilities of zero are taken for very
    small ones.
    """
    ratio = combined.clamp_min(1e-12).log() - spoken.clamp_min(1e-12).log()
    return torch.einsum("nrk,mrk->nm", ratio, spoken) / spoken.shape[1]
