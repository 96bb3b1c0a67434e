"""FedMD: different networks learn the average of their logits on public data; in FedMD+Global the server's does, too.

Sent by a client: its logits on public rows. Everyone knows by the seed which rows these are. No weights, no labels.
Sent by the server: a request to predict, then the average of the logits.

Papers: Li and Wang, FedMD: Heterogenous Federated Learning via Model Distillation, 2019; Shi, Radu and Yang, Closing
the Gap between Client and Global Model Performance in Heterogeneous FL, 2022. Algorithm 1 and Eq. 1-4 of the second
one. The average is of logits before the softmax. Eq. 1 is the distance to it (`measure`, `reduction`). Eq. 4 is
learning without forgetting (LwoF): beta (`lwof`) times the soft cross-entropy at temperature rho with the client's own
prediction before its local update.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    Deviation,
    Each,
    Fit,
    Global,
    Inbox,
    Kind,
    Logits,
    Mark,
    Message,
    Method,
    Need,
    Node,
    Own,
    Predict,
    PublicLabels,
    Round,
    Steps,
    Sum,
    decides,
    on,
    senders,
)
from heterophony.parts import (
    Cohort,
    Nets,
    PublicRows,
    SeenRows,
    Training,
    answers,
    as_sent,
    cross_entropy,
    distance,
    soft_cross_entropy,
)

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public", "rows.sample"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public", "rows.sample"))

DEVIATIONS = (
    Deviation(
        "distance",
        "L1 unless set (`measure`). It is the mean over rows and over a row's outputs, or the sum over a row's "
        'outputs (`reduction = "sum"`).',
        "Eq. 1 of FedMD+Global prints a norm, which is a sum over the 30 outputs. It says nothing of rows. A sum is "
        "a mean with 30 times the rate, so the rate decides.",
    ),
    Deviation(
        "average",
        "the mean of the logits; `cohort.combine` can make it another rule",
        "the papers have the mean; the two others bear some clients that lie",
    ),
    Deviation("public rows", "everyone knows by the seed which rows a round uses", "so that only logits travel"),
    Deviation(
        "start of the networks",
        "In FedMD+Global convolutions begin as torch draws them. `wrn-d-k-fan-out` begins as the authors of wide "
        "ResNets have it.",
        "The paper does not say. By fan-out with biases of zero they learn more slowly at its rate.",
    ),
    Deviation(
        "initial epochs",
        "options (`initial_public`, `local.initial`), 0 unless set; `initial_global` trains the global model too",
        "FedMD+Global does not give their number, and initialises client models alone",
    ),
    Deviation(
        "accuracy",
        "with a joint head (FedMD+Global) only the outputs of the private classes count",
        "the paper does not say",
    ),
    Deviation(
        "LwoF",
        "temperature `rho` = 2 unless set, mean over the batch",
        "the paper gives neither; 2 is the value of the LwF paper",
    ),
)


class FedMD(Method):
    """Different networks agree on public data: everyone learns the average of all logits."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    models = {"server": {"model": Global()}, "client": {"model": Own()}}
    memory = ("initialised", "seen")
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted", "distil.initial")
    public = True

    global_model: Annotated[bool, "the server has a network of its own, which learns the average too"] = False
    rows: PublicRows = PublicRows()
    measure: Annotated[Literal["l1", "l2", "ce"], "the distance of Eq. 1"] = "l1"
    reduction: Annotated[
        Literal["mean", "sum"], "over a row's outputs, for l1 and l2; Eq. 1 prints a norm, which is a sum"
    ] = "mean"
    half: Annotated[bool, "logits travel as float16"] = False
    initial_public: Annotated[int, "epochs on labelled public data before a client's first round"] = 0
    initial_global: Annotated[int, "epochs on labelled public data before the server's first round"] = 0
    distil: Training = Training()
    local: Training = Training()
    lwof: Annotated[float, "beta of Eq. 4, the weight of learning without forgetting; 0 is off"] = 0.0
    rho: Annotated[float, "temperature of learning without forgetting"] = 2.0
    seen: SeenRows = SeenRows()
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("initial_public", "initial_global"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is a whole number >= 0, got {getattr(self, name)}")
        if self.initial_global and not self.global_model:
            raise ValueError("initial_global trains the server's network, which only fedmd-global has")
        if not self.lwof >= 0 or not self.rho > 0:
            raise ValueError(f"lwof is a weight >= 0 and rho a temperature > 0, got {self.lwof} and {self.rho}")
        if self.measure == "ce" and self.reduction != "mean":
            raise ValueError('reduction = "sum" goes with measure = "l1" or "l2": cross-entropy is always a sum')

    def needs(self) -> list[Need]:
        options = ("initial_public", "initial_global")
        first = [PublicLabels(instead=f"{name}=0") for name in options if getattr(self, name)]
        return [*super().needs(), *first]

    @on(Round, role="server")
    def ask(self, server: Node) -> Steps:
        if self.initial_global and server.round == 0:
            yield self.on_labels(self.initial_global)
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        if "initialised" not in client.vars:
            client.vars["initialised"] = True
            if self.initial_public:
                yield self.on_labels(self.initial_public)
            yield from self.seen.note(client, self.local.data)
            rows = self.seen.of(client, self.local.data)
            yield from self.local.before_first_round(client, cross_entropy, rows=rows)
            yield Mark("initial", once=True)
        logits = yield self.rows.outputs(client)
        return LOGITS(logits=as_sent(logits, self.half))

    def sums(self) -> Sum:
        return self.cohort.sum(LOGITS, "logits")

    @on(answers(LOGITS), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            agreed = self.cohort.tensor(server, mail, "logits")
            yield CONSENSUS(senders(mail), logits=as_sent(agreed, self.half))
            if self.global_model:
                yield self.match(server, agreed)
                yield Mark("global")
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        yield self.match(client, mail.logits.float())
        yield Mark("distilled")
        rows = self.seen.of(client, self.local.data)
        if self.lwof:
            kept = yield Predict("model", self.local.data, rows)
            yield self.local.fit("model", self.without_forgetting, extra={"kept": kept}, rows=rows)
        else:
            yield self.local.fit("model", cross_entropy, rows=rows)
        yield Mark("personalised")

    def on_labels(self, epochs: int) -> Fit:
        """Return the work order to learn labelled public data, before the first round."""
        return self.local.fit("model", cross_entropy, once=True, data="public", epochs=epochs, steps=None)

    def match(self, node: Node, agreed: Tensor) -> Fit:
        """Return the work order to learn the average on this round's public rows (Eq. 1)."""
        rows = self.rows.of(node)
        return self.distil.fit("model", self.distance, data="public", rows=rows, extra={"agreed": agreed})

    def distance(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return Eq. 1."""
        apart = distance(batch.agreed, nets["model"](batch.x), self.measure, self.reduction)
        return {"model": {self.measure: apart}}

    def without_forgetting(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return Eq. 4: cross-entropy with the labels, and with what the network said before."""
        logits = nets["model"](batch.x)
        old = soft_cross_entropy(batch.kept, logits, self.rho)
        return {"model": {"ce": F.cross_entropy(logits, batch.y), "lwof": self.lwof * old}}


@decides("global_model")
def fedmd_global(**fedmd: Any) -> FedMD:
    """FedMD whose server learns a network of its own; `lwof` keeps clients from forgetting the others."""
    return FedMD(global_model=True, **fedmd)
