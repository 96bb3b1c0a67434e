"""FedMD, and FedMD+Global with learning without forgetting.

Leaves a client: its logits on public rows that everyone knows by seed. Leaves the server: their average.
Equations: Algorithm 1 and Eq. 1-4 of the second paper. The average is of logits before the softmax, the distance is L1
(L2 and CE are options), mean over rows and outputs; Eq. 1 prints the sum over outputs (`reduction`). LwoF adds beta
times the soft cross-entropy at temperature rho with the client's own prediction before its local update, mean over the
batch (the paper says neither rho nor the reduction).
Deviations: the number of initial epochs is not given in the paper and is an option; the average may be a robust one.
Where training augments images, LwoF's prediction before is of the images as they are.
References: Li and Wang, FedMD, 2019; Shi, Radu and Yang, Closing the Gap between Client and Global Model Performance in
Heterogeneous FL, 2022.
"""

from __future__ import annotations

from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
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
    combine,
    cross_entropy,
    distance,
    soft_cross_entropy,
)

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public", "rows.sample"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public", "rows.sample"))


class FedMD(Method):
    """Different networks agree on public data: everyone learns the average of all logits."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    models = {"server": {"model": Global()}, "client": {"model": Own()}}
    memory = ("initialised",)
    headline = "personalised"
    unused = ("cohort.weighted", "distil.initial")
    public = True

    global_model: bool = False  # the server has a network of its own that learns the average too
    rows: PublicRows = PublicRows()
    measure: Literal["l1", "l2", "ce"] = "l1"
    reduction: Literal["mean", "sum"] = "mean"  # of l1 and l2 over a row's outputs; Eq. 1 prints a norm, which is a sum
    average: Literal["mean", "median", "trimmed"] = "mean"
    half: bool = False  # logits travel as float16
    initial_public: int = 0  # epochs before the first round, on labelled public data
    distil: Training = Training()
    local: Training = Training()
    lwof: float = 0.0  # beta of Eq. 4; 0 is off
    rho: float = 2.0
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_public < 0:
            raise ValueError(f"initial_public is a whole number >= 0, got {self.initial_public}")
        if not self.lwof >= 0 or not self.rho > 0:
            raise ValueError(f"lwof is a weight >= 0 and rho a temperature > 0, got {self.lwof} and {self.rho}")

    def needs(self) -> list[Need]:
        first = [PublicLabels(instead="initial_public=0")] if self.initial_public else []
        return [*super().needs(), *first]

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        if "initialised" not in client.vars:
            client.vars["initialised"] = True
            if self.initial_public:
                on_public = {"data": "public", "epochs": self.initial_public, "steps": None}
                yield self.local.fit("model", cross_entropy, once=True, **on_public)
            yield from self.local.first(client, cross_entropy)
            yield Mark("initial", once=True)
        logits = yield self.rows.outputs(client)
        return LOGITS(logits=logits.half() if self.half else logits)

    @on(answers(LOGITS), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            agreed = combine([m.logits for m in mail], self.average)
            yield CONSENSUS([m.sender for m in mail], logits=agreed.half() if self.half else agreed)
            if self.global_model:
                yield self.match(server, agreed)
                yield Mark("global")
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        yield self.match(client, mail.logits.float())
        yield Mark("distilled")
        if self.lwof:
            kept = yield Predict("model", self.local.data)
            yield self.local.fit("model", self.without_forgetting, extra={"kept": kept})
        else:
            yield self.local.fit("model", cross_entropy)
        yield Mark("personalised")

    def match(self, node: Node, agreed: Tensor) -> Fit:
        """Eq. 1 on this round's public rows."""
        rows = self.rows.of(node)
        return self.distil.fit("model", self.distance, data="public", rows=rows, extra={"agreed": agreed})

    def distance(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        return {"model": {self.measure: distance(batch.agreed, nets["model"](batch.x), self.measure, self.reduction)}}

    def without_forgetting(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Eq. 4."""
        logits = nets["model"](batch.x)
        old = soft_cross_entropy(batch.kept, logits, self.rho)
        return {"model": {"ce": F.cross_entropy(logits, batch.y), "lwof": self.lwof * old}}


def fedmd_global(**fedmd: Any) -> FedMD:
    """FedMD whose server learns a network of its own; `lwof` keeps clients from forgetting the others."""
    return FedMD(global_model=True, **fedmd)


fedmd_global.fixed = ("global_model",)  # type: ignore[attr-defined]
