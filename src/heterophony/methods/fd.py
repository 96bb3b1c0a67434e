"""FD (federated distillation): for each label, everyone learns what the others' networks say of it on average.

Sent by a client: for each label, the mean of its softmax outputs on its private rows of that label, and which labels it
has. No weights, no rows; there are no public data.
Sent by the server: to each client, the same means over the other clients.

Paper: Jeong et al., Communication-Efficient On-Device Machine Learning: Federated Distillation and Augmentation under
Non-IID Private Data, 2018. Algorithm 1 (FD). The loss is the cross-entropy with the label plus gamma times the
cross-entropy with the others' mean for that label, mean over the batch. The mean over the others leaves the client's
own out, and is not weighted.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from heterophony import (
    Counts,
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
    PerClass,
    Predict,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    ClassMeans,
    Cohort,
    Nets,
    Training,
    answers,
    by_label,
    ce,
    columns_for,
    cross_entropy,
    fits_data,
    unknown,
    usual,
)

TEACHERS = Kind("teachers", to="children", means=PerClass(rows="held", soft=True), held=Counts)
MEANS = Kind("means", to="parent", means=PerClass(rows="held", soft=True), held=Counts)

DEVIATIONS = (
    Deviation(
        "means",
        "Of the network after its local update, in evaluation mode.",
        "The paper gathers outputs of the batches while it trains. Every prediction here is in evaluation mode. It "
        "is one more pass forward, and the means are of one network.",
    ),
    Deviation(
        "divisor",
        "The number of the others who have the label, not M - 1. A row whose label nobody else has gets the "
        "cross-entropy alone.",
        "The paper's devices have all labels.",
    ),
    Deviation(
        "absent clients",
        "a client that misses a round, or is not in its cohort, counts with what it sent last",
        "the paper's devices take part in every round",
    ),
    Deviation("gamma", "0.1 unless set", "the value is ours"),
    Deviation(
        "means of another shape",
        "The server leaves out means that are not of the shape that most have. Means may come to a client that do "
        "not fit its labels and outputs. It then trains as if nothing were known, and notes it.",
        "A node may send anything, and networks may have different outputs.",
    ),
    Deviation("FAug", "the paper's generator of samples is not here", "this file is its Algorithm 1 (FD) alone"),
)


class FD(Method):
    """Different networks learn without public data from the mean outputs of the others for each label."""

    roles = ("server", "client")
    kinds = (TEACHERS, MEANS)
    memory = ("tables",)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    serves = ("classification",)
    unused = ("cohort.weighted",)

    gamma: Annotated[float, "the weight of what the others say"] = 0.1
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gamma >= 0:
            raise ValueError(f"gamma is a weight >= 0, got {self.gamma}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        heard = {name: ClassMeans(*table) for name, table in server.vars.get("tables", {}).items()}
        tables = usual(heard)
        sends = []
        for client in self.cohort.draw(server):
            others = self._others(server, tables, client)
            sends.append(TEACHERS(client, means=others.means, held=others.counts.clamp(max=1)))
        return sends

    @on(Each(TEACHERS), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        data = client.data[self.local.data]
        yield from self.local.before_first_round(client, cross_entropy)
        teachers = ClassMeans(mail.means, mail.held)
        taught = False
        if len(teachers.means):
            # Only a prediction says how many outputs the network has.
            one = yield Predict("model", self.local.data, torch.arange(min(1, len(data))))
            taught = fits_data(teachers, data, one.shape[-1])
            if not taught:
                yield Note("misfit", 1.0)
        if taught:
            columns = columns_for(teachers, data.y)
            yield self.local.fit("model", self.distil, extra=columns, keep="own")
        else:
            yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        outputs = yield Predict("model", self.local.data)
        own = by_label(outputs.softmax(-1), data)
        return MEANS(means=own.means, held=own.counts.clamp(max=1))

    @on(answers(MEANS), role="server")
    def gather(self, server: Node, mail: Inbox) -> None:
        tables = dict(server.vars.get("tables", {}))
        for m in mail:
            present = m.means.sum(-1) > 0.5  # softmax outputs sum to one; a row of zeros says nothing
            tables[m.sender] = [m.means, m.held.clamp(max=1) * present]
        server.vars["tables"] = tables
        server.round += 1

    def distil(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return both terms of the loss.

        The column `mean` is what the others say of a row's label; `heard` is 1 where anybody said something, else 0.
        """
        logits = nets["model"](batch.x)
        each = -(batch.mean * logits.log_softmax(-1)).sum(-1)
        taught = (batch.heard * each).mean()
        return {"model": {"ce": ce(logits, batch.y), "kd": self.gamma * taught}}

    def _others(self, server: Node, tables: dict[str, ClassMeans], client: str) -> ClassMeans:
        """Return the means over all clients but one; before anybody has sent any, an empty table."""
        if not tables:
            return unknown()
        first = next(iter(tables.values()))
        nobody = ClassMeans(first.means * 0, first.counts * 0)  # it says the shape where the client is the only one
        others = {name: table for name, table in tables.items() if name != client}
        return self.cohort.table(server, {"": nobody, **others})
