"""FCCL: federated cross-correlation and continual learning.

Leaves a client: its logits on unlabelled public rows that everyone knows by seed. Leaves the server: their average.
Equations: Algorithm 1; Eq. 1-2 (cross-correlation of standardised logits; on the diagonal to +1, off it to -1, weighted
by lambda_col), Eq. 3-7 (cross-entropy and KL from the previous round's and the pretrained model, weighted by
lambda_loc; KL summed over classes, mean over the batch).
Deviations: Z-bar is computed once a round, as in Algorithm 1. Refreshing it for every public batch, as the authors'
code does, is `sample` = one batch and `local_every` = batches a round.
Reference: Huang et al., Learn from Others and Be Yourself in Heterogeneous Federated Learning, CVPR 2022.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data
from heterophony.federation import Federation
from heterophony.fields import Logits
from heterophony.mailbox import Inbox
from heterophony.message import Kind, Message, Send
from heterophony.method import Method
from heterophony.node import Node
from heterophony.parts.aggregate import combine
from heterophony.parts.losses import Nets, cross_entropy, kl
from heterophony.parts.public import logits_traffic, public_rows
from heterophony.parts.training import Training
from heterophony.reaction import Each, Every, Round, on
from heterophony.work import Mark, Note, Predict, Steps

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public", "sample"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public", "sample"))


def cross_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Eq. 1: the matrix of correlations between the classes of two sets of logits, over the batch."""
    a, b = a - a.mean(0), b - b.mean(0)
    scale = a.norm(dim=0).unsqueeze(1) * b.norm(dim=0).unsqueeze(0)
    matrix: Tensor = a.T @ b / scale.clamp_min(1e-12)
    return matrix


def correlation_loss(matrix: Tensor, weight: float) -> Tensor:
    """Eq. 2."""
    diagonal = torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
    return torch.where(diagonal, (1 - matrix) ** 2, weight * (1 + matrix) ** 2).sum()


class FCCL(Method):
    """Logits on unlabelled public data are correlated class by class; local training remembers two older selves."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    models = {"client": {"model": "own", "previous": "own", "pretrained": "own"}}
    memory = ("pretrained",)
    headline = "local"
    public = True

    lambda_col: float = 0.0051
    lambda_loc: float = 1.0
    sample: int | None = None
    fresh: bool = True
    average: Literal["mean", "median", "trimmed"] = "mean"
    half: bool = False
    local_every: int = 1  # local updates in every so many rounds
    pretrain: Training = Training(epochs=0, lr=1e-3, optimiser="adam", batch=512)
    collaborate: Training = Training(lr=1e-3, optimiser="adam", batch=512)
    local: Training = Training(lr=1e-3, optimiser="adam", batch=512)
    fraction: float = 1.0
    quorum: int | float = 1
    deadline: float | None = None

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(server.cohort(self.fraction))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        if "pretrained" not in client.vars:
            client.vars["pretrained"] = True
            if self.pretrain.epochs:
                yield self.pretrain.fit("model", cross_entropy)
            yield Mark("initial")
            for older in ("pretrained", "previous"):
                client.copy("model", older)
        logits = yield Predict("model", "public", public_rows(client, self.sample, self.fresh))
        return LOGITS(logits=logits.half() if self.half else logits)

    @on(Every(LOGITS, of="cohort", quorum="quorum", deadline="deadline"), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            agreed = combine([m.logits for m in mail], self.average)
            yield CONSENSUS([m.sender for m in mail], logits=agreed.half() if self.half else agreed)
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        rows, agreed = public_rows(client, self.sample, self.fresh), mail.logits.float()
        yield self.collaborate.fit(
            "model",
            self.correlate,
            data="public",
            rows=rows,
            extra={"agreed": agreed},
            drop_last=self._whole(len(rows)),
        )
        after = yield Predict("model", "public", rows)
        matrix = cross_correlation(after, agreed)
        yield Note("correlation.on", float(matrix.diagonal().mean()))
        yield Note(
            "correlation.off", float((matrix.sum() - matrix.diagonal().sum()) / max(1, len(matrix) ** 2 - len(matrix)))
        )
        if (client.round + 1) % self.local_every == 0:
            yield self.local.fit("model", self.remember, teachers=("previous", "pretrained"))
            client.copy("model", "previous")
        yield Mark("local")

    def _whole(self, rows: int) -> bool:
        """Whether to leave a short last batch out: its correlations would be noise."""
        return self.collaborate.batch is not None and rows > self.collaborate.batch

    def correlate(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        matrix = cross_correlation(nets["model"](batch.x), batch.agreed)
        return {"model": {"correlation": correlation_loss(matrix, self.lambda_col)}}

    def remember(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Eq. 7."""
        logits = nets["model"](batch.x)
        inter, intra = kl(nets["previous"](batch.x), logits), kl(nets["pretrained"](batch.x), logits)
        terms = {"inter": self.lambda_loc * inter, "intra": self.lambda_loc * intra}
        return {"model": {"ce": F.cross_entropy(logits, batch.y), **terms}}

    def traffic(self, federation: Federation, rounds: int) -> dict[str, int]:
        sent = logits_traffic(federation.first("server"), self.fraction, rounds, self.sample, self.half)
        return {"ask": 0, "logits": sent, "consensus": sent}
