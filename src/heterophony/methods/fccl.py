"""FCCL: federated cross-correlation and continual learning.

Leaves a client: its logits on unlabelled public rows that everyone knows by seed; with `averaging`, which is for one
network for all, its weights too. Leaves the server: the average of the logits, and of how many; that of the weights.
Equations: Algorithm 1; Eq. 1-2 (cross-correlation of standardised logits; on the diagonal to +1, off it to -1, weighted
by lambda_col), Eq. 3-7 (cross-entropy and KL from the previous round's and the pretrained model, weighted by
lambda_loc; KL summed over classes, mean over the batch). Table 3: parameters are averaged between the two phases.
Deviations: Z-bar is computed once a round, as in Algorithm 1. The authors' code is `fccl_code`: Z-bar for every public
batch (`sample` = one batch, `local_every` = batches a round; a round here is then one exchange), one's own part of it
from the previous round's model (`zbar`), and a new optimiser for each of these batches (`renew`). That code's
matrix of correlations is (N - 1)/N of Eq. 1's, which is ours. The average of the weights is a plain mean; who is too
late for it does not train in that round.
Reference: Huang et al., Learn from Others and Be Yourself in Heterogeneous Federated Learning, CVPR 2022.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    Each,
    Inbox,
    Kind,
    Logits,
    Mark,
    Message,
    Method,
    NetworksByRole,
    Node,
    Note,
    Own,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers, combine, cross_correlation, cross_entropy, kl

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public", "rows.sample"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public", "rows.sample"), heard=Scalar(low=1))
MODEL = Kind("model", to="parent", weights=Weights("model"))
MEAN = Kind("mean", to="children", weights=Weights("model"))
BATCH = PublicRows(sample=512)


def correlation_loss(matrix: Tensor, weight: float) -> Tensor:
    """Eq. 2."""
    diagonal = torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
    return torch.where(diagonal, (1 - matrix) ** 2, weight * (1 + matrix) ** 2).sum()


class FCCL(Method):
    """Logits on unlabelled public data are correlated class by class; local training remembers two older selves."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS, MODEL, MEAN)
    models = {"client": {"model": Own(), "previous": Own(), "pretrained": Own()}}
    memory = ("pretrained",)
    headline = "local"
    unused = ("cohort.weighted", "pretrain.initial", "collaborate.initial", "local.initial")
    public = True
    correlates = True

    lambda_col: float = 0.0051
    lambda_loc: float = 1.0
    rows: PublicRows = PublicRows()
    average: Literal["mean", "median", "trimmed"] = "mean"
    half: bool = False
    zbar: Literal["all", "others"] = "all"  # "others": others' present logits and those of one's own previous model
    renew: bool = False  # a new optimiser for each public batch
    averaging: bool = False  # of parameters, before local updates; needs one network for all
    local_every: int = 1  # local updates in every so many rounds
    pretrain: Training = Training(epochs=0, lr=1e-3, optimiser="adam", batch=512)
    collaborate: Training = Training(lr=1e-3, optimiser="adam", batch=512)
    local: Training = Training(lr=1e-3, optimiser="adam", batch=512)
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not min(self.lambda_col, self.lambda_loc) >= 0:
            given = f"{self.lambda_col} and {self.lambda_loc}"
            raise ValueError(f"lambda_col and lambda_loc are weights >= 0, got {given}")
        if self.local_every < 1:
            raise ValueError(f"local_every is a whole number >= 1, got {self.local_every}")
        if self.zbar == "others" and self.average != "mean":
            raise ValueError(f"zbar = 'others' is a mean, average is {self.average!r}")

    def networks(self) -> NetworksByRole:
        if not self.averaging:
            return self.models
        return {
            "server": {"model": Same(start="alike")},
            "client": dict.fromkeys(self.models["client"], Same(start="alike")),
        }

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        if "pretrained" not in client.vars:
            client.vars["pretrained"] = True
            if self.pretrain.epochs:
                yield self.pretrain.fit("model", cross_entropy, once=True)
            yield Mark("initial", once=True)
            for older in ("pretrained", "previous"):
                client.copy("model", older)
        logits = yield self.rows.outputs(client)
        return LOGITS(logits=logits.half() if self.half else logits)

    @on(answers(LOGITS), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            heard = tuple(m.sender for m in mail)
            agreed = combine([m.logits for m in mail], self.average)
            yield CONSENSUS(heard, logits=agreed.half() if self.half else agreed, heard=len(heard))
            if self._averages(server):
                server.groups["heard"] = heard
                return
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        rows, agreed = self.rows.of(client), mail.logits.float()
        if self.zbar == "others":
            present = yield Predict("model", "public", rows)
            agreed = agreed + ((yield Predict("previous", "public", rows)) - present) / mail.heard
        yield from self.collaboration(client, rows, agreed)
        after = yield Predict("model", "public", rows)
        matrix = cross_correlation(after, agreed)
        yield Note("correlation.on", float(matrix.diagonal().mean()))
        yield Note(
            "correlation.off", float((matrix.sum() - matrix.diagonal().sum()) / max(1, len(matrix) ** 2 - len(matrix)))
        )
        if self._averages(client):
            return MODEL(weights=client.weights())
        yield from self.practise(client)

    @on(answers(MODEL, of="heard"), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(mail, by=None))
            yield MEAN([m.sender for m in mail], weights=server.weights())
        server.round += 1

    @on(Each(MEAN), role="client")
    def take(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        yield from self.practise(client)

    def collaboration(self, client: Node, rows: Tensor | None, agreed: Tensor) -> Steps:
        """The collaborative update, as one piece of work or one for each batch."""
        whole = self._whole(len(agreed))
        fit = partial(self.collaborate.fit, "model", self.correlate, data="public")
        if not self.renew:
            yield fit(rows=rows, extra={"agreed": agreed}, drop_last=whole)
            return
        size, draw = self.collaborate.batch or len(agreed), client.rng("public batches")
        for _ in range(self.collaborate.epochs):
            for batch in torch.split(torch.randperm(len(agreed), generator=draw), size):
                if len(batch) == size or not whole:
                    chosen = batch if rows is None else rows[batch]
                    yield fit(rows=chosen, extra={"agreed": agreed[batch]}, epochs=1, batch=None)

    def practise(self, client: Node) -> Steps:
        """The local update."""
        if self._local(client):
            yield self.local.fit("model", self.remember, teachers=("previous", "pretrained"))
            client.copy("model", "previous")
        yield Mark("local")

    def _local(self, node: Node) -> bool:
        return (node.round + 1) % self.local_every == 0

    def _averages(self, node: Node) -> bool:
        return self.averaging and self._local(node)

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

    def sends(self) -> tuple[Kind, ...]:
        return self.kinds if self.averaging else (ASK, LOGITS, CONSENSUS)


def fccl_homogeneous(**fccl: Any) -> FCCL:
    """FCCL between participants with the same network: their parameters are averaged before local updates."""
    return FCCL(averaging=True, **fccl)


def fccl_code(rows: PublicRows = BATCH, local_every: int = 9, **fccl: Any) -> FCCL:
    """FCCL as in its authors' code: logits are exchanged for every public batch, so that nine rounds are one there."""
    return FCCL(rows=rows, local_every=local_every, zbar="others", renew=True, **fccl)


fccl_homogeneous.fixed = ("averaging",)  # type: ignore[attr-defined]
fccl_code.fixed = ("zbar", "renew")  # type: ignore[attr-defined]
