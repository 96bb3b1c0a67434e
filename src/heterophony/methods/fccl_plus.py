"""FCCL+: clients agree on public rows in their outputs, and in which rows are alike.

Sent by a client: for public rows that everyone knows by seed its logits, and how alike it finds each two of them. No
private rows, no labels, no weights.
Sent by the server: the means of both.

Paper: Huang, Ye, Shi and Du, Generalizable Heterogeneous Federated Cross-Correlation and Instance Similarity Learning,
IEEE TPAMI 2024, and the authors' code. On public rows FCCL's Eq. 2, and `mu` times the KL from the mean similarities:
cosines of features over `tau`, softmax over all other rows. On private rows cross-entropy, and T squared times the KL
from the previous round's model at temperature T, over all classes but the label (non-target distillation). The values
of mu, tau and T are the code's for digits.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    Deviation,
    Each,
    Features,
    Inbox,
    Kind,
    Logits,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Own,
    Predict,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    Cohort,
    Nets,
    PublicRows,
    Training,
    answers,
    correlation_loss,
    cross_correlation,
    cross_entropy,
    full_batches,
    head_of,
)

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public", "rows.sample"), alike=Features(rows="logits"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public", "rows.sample"), alike=Features(rows="logits"))
ADAM = Training(lr=1e-3, optimiser="adam", batch=128)
NO_PRETRAINING = Training(epochs=0, lr=1e-3, optimiser="adam", batch=128)
PUBLIC = Training(lr=1e-3, optimiser="adam", batch=256)

DEVIATIONS = (
    Deviation(
        "exchange",
        "once a round, for 512 public rows (`rows.sample`)",
        "the authors' code makes both means anew for every public batch, with a new optimiser",
    ),
    Deviation(
        "outputs and features that are sent",
        "of evaluation mode",
        "the code's are of training mode; `Predict` is in evaluation mode everywhere",
    ),
    Deviation(
        "correlation matrix",
        "that of FCCL's Eq. 1, with a diagonal of one for equal logits",
        "the code's is (N - 1)/N of it",
    ),
    Deviation(
        "non-target distillation",
        "probabilities of all classes, without that of the label, and not made to sum to one again",
        "as the code has it",
    ),
    Deviation("one network for all", "parameters are not averaged", "the code has a mode for it; see fccl-homogeneous"),
)


class FCCLPlus(Method):
    """Clients correlate outputs of public rows and agree which are alike; locally they remember all but the label."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    models = {"client": {"model": Own(), "previous": Own()}}
    memory = ("begun",)
    headline = "local"
    serves = ("classification",)
    unused = ("cohort.weighted", "pretrain.initial", "collaborate.initial", "local.initial", "local.private")
    public = True

    lambda_col: Annotated[float, "weight of what is off the diagonal, in FCCL's Eq. 2"] = 0.0051
    mu: Annotated[float, "weight of the similarities of public rows"] = 3.0
    tau: Annotated[float, "temperature of similarities"] = 0.02
    temperature: Annotated[float, "T, of non-target distillation"] = 3.0
    rows: PublicRows = PublicRows(sample=512)
    pretrain: Training = NO_PRETRAINING
    collaborate: Training = PUBLIC
    local: Training = ADAM
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not min(self.lambda_col, self.mu) >= 0 or not min(self.tau, self.temperature) > 0:
            given = f"{self.lambda_col}, {self.mu}, {self.tau} and {self.temperature}"
            raise ValueError(f"lambda_col and mu are weights >= 0, tau and temperature > 0, got {given}")

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        head_of(client.models["model"], "FCCL+")
        if "begun" not in client.vars:
            client.vars["begun"] = True
            if self.pretrain.at(client).epochs:
                yield self.pretrain.fit("model", cross_entropy, once=True)
            yield Mark("initial", once=True)
            client.copy("model", "previous")
        logits = yield self.rows.outputs(client)
        features = yield Predict("model.body", "public", self.rows.of(client))
        return LOGITS(logits=logits, alike=self.similarities(features))

    @on(answers(LOGITS), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        heard = [m for m in mail if m.alike.shape == (len(m.logits), len(m.logits))]
        if len(heard) < len(mail):  # a sender may send anything
            yield Note("misfit", len(mail) - len(heard))
        if heard:
            logits, alike = (self.cohort.tensor(server, heard, field) for field in ("logits", "alike"))
            yield CONSENSUS([m.sender for m in heard], logits=logits, alike=alike)
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        count = len(mail.logits)
        beside = {"zbar": mail.logits, "alike": mail.alike, "place": torch.arange(count)}
        yield self.collaborate.fit(
            "model",
            self.collaborative,
            data="public",
            rows=self.rows.of(client),
            extra=beside,
            parts=("model.body", "model.head"),
            drop_last=full_batches(self.collaborate.at(client).batch, count),
        )
        yield self.local.fit("model", self.remembering, teachers=("previous",))
        client.copy("model", "previous")
        yield Mark("local")

    def similarities(self, features: Tensor) -> Tensor:
        """Return the cosine of each two rows, over tau."""
        unit = F.normalize(features, dim=1)
        return unit @ unit.T / self.tau

    def collaborative(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss on public rows, beside which the means of all stand."""
        features = nets["model.body"](batch.x)
        matrix = cross_correlation(nets["model.head"](features), batch.zbar)
        wanted = batch.alike.index_select(1, batch.place)  # similarities with the rows of this batch
        apart = kl_of_others(wanted, self.similarities(features))
        return {"model": {"correlation": correlation_loss(matrix, self.lambda_col), "similarity": self.mu * apart}}

    def remembering(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the loss on private rows: cross-entropy, and KL from the previous model without the label."""
        logits, t = nets["model"](batch.x), self.temperature
        new, old = (logits / t).log_softmax(-1), (nets["previous"](batch.x).detach() / t).log_softmax(-1)
        other = 1 - F.one_hot(batch.y, logits.shape[-1]).to(logits)
        apart = (other * old.exp() * (old - new)).sum(-1).mean()
        return {"model": {"ce": F.cross_entropy(logits, batch.y), "kd": t**2 * apart}}


def kl_of_others(wanted: Tensor, own: Tensor) -> Tensor:
    """Return KL of similarities with all other rows: softmax over these, mean over the rows."""
    itself = torch.eye(len(own), dtype=torch.bool, device=own.device)
    target = wanted.detach().masked_fill(itself, -torch.inf).log_softmax(-1).masked_fill(itself, 0.0)
    learnt = own.masked_fill(itself, -torch.inf).log_softmax(-1).masked_fill(itself, 0.0)
    return (target.exp() * (target - learnt)).sum(-1).mean()
