"""Federated distillation: for each label, everyone learns what the others' networks say of it on average.

Leaves a client: for each label, the mean of its softmax outputs on its private rows of that label, and which labels it
has. Leaves the server, to each client: the same means over the other clients. No weights, no rows, no public data.
Equations: Algorithm 1 (FD). The loss is cross-entropy with the label plus gamma times cross-entropy with the others'
mean for that label, mean over the batch; the mean over the others leaves the client's own out, and is not weighted.
Deviations: means are of the network after its local update, in evaluation mode, not gathered from the batches while it
changes. A label's mean is over those who have it, not over all M - 1 others; a row whose label nobody else has gets the
cross-entropy alone. Who misses a round, or is not in its cohort, counts with what it sent last. The value of gamma is
ours. A table that is not of the shape that most have is left out; a client whom one reaches that does not fit its
labels and outputs trains as if nothing were known, and notes it. The paper's generator of samples (FAug) is not here.
Reference: Jeong et al., Communication-Efficient On-Device Machine Learning: Federated Distillation and Augmentation
under Non-IID Private Data, 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony import (
    Counts,
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
    PerClass,
    Predict,
    Round,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    Cohort,
    Nets,
    Table,
    Training,
    answers,
    by_label,
    ce,
    cross_entropy,
    fitting,
    merged,
    spread,
    unknown,
    usual,
)

TEACHERS = Kind("teachers", to="children", means=PerClass(rows="held", soft=True), held=Counts)
MEANS = Kind("means", to="parent", means=PerClass(rows="held", soft=True), held=Counts)


class FD(Method):
    """Different networks, no public data: mean outputs for each label travel, and teach all but those they are of."""

    roles = ("server", "client")
    kinds = (TEACHERS, MEANS)
    memory = ("tables",)
    models = {"client": {"model": Own()}}
    headline = "personalised"
    unused = ("cohort.weighted",)

    gamma: float = 0.1  # the weight of what the others say
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gamma >= 0:
            raise ValueError(f"gamma is a weight >= 0, got {self.gamma}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        known = usual({name: Table(*table) for name, table in server.vars.get("tables", {}).items()})
        tables = {client: _others(known, client) for client in self.cohort.draw(server)}
        return [TEACHERS(c, means=t.means, held=t.counts.clamp(max=1)) for c, t in tables.items()]

    @on(Each(TEACHERS), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        data = client.data[self.local.data]
        yield from self.local.first(client, cross_entropy)
        teachers, taught = Table(mail.means, mail.held), False
        if len(mail.means):
            one = yield Predict("model", self.local.data, torch.arange(min(1, len(data))))  # how many outputs it has
            taught = fitting(teachers, data, one.shape[-1])
            if not taught:
                yield Note("misfit", 1.0)
        if taught:
            yield self.local.fit("model", self.distil, extra=spread(teachers, data.y), keep="own")
        else:
            yield self.local.fit("model", cross_entropy, keep="own")
        yield Mark("personalised")
        outputs = yield Predict("model", self.local.data)
        own = by_label(outputs.softmax(-1), data)
        return MEANS(means=own.means, held=own.counts.clamp(max=1))

    @on(answers(MEANS), role="server")
    def gather(self, server: Node, mail: Inbox) -> None:
        heard = {m.sender: [m.means, m.held.clamp(max=1) * (m.means.sum(-1) > 0.5)] for m in mail}
        server.vars["tables"] = {**server.vars.get("tables", {}), **heard}
        server.round += 1

    def distil(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """`mean` is what the others say of the row's label."""
        logits = nets["model"](batch.x)
        taught = -(batch.mean * logits.log_softmax(-1)).sum(-1)
        return {"model": {"ce": ce(logits, batch.y), "kd": self.gamma * (batch.heard * taught).mean()}}


def _others(tables: dict[str, Table], client: str) -> Table:
    """What all but one say; before anybody has said anything, nothing."""
    if not tables:
        return unknown()
    nobody = Table(*(part * 0 for part in next(iter(tables.values()))))
    return merged([nobody, *(table for name, table in tables.items() if name != client)])
