"""FedKT: teachers on parts of the private rows vote on public rows, students learn the votes, and vote in their turn.

Sent by a client: the weights of its students. No teacher, and no vote of one, leaves it.
Sent by the server: a request. Its model, which learns the students' votes, stays there.

Paper: Li, He and Song, Practical One-Shot Federated Learning for Cross-Silo Setting, IJCAI 2021. The algorithm FedKT,
without noise. A party makes `partitions` partitions of its rows, of `teachers` parts each. A student learns the
majority of the teachers of its partition. At the server a party's vote on a row counts, as often as it has students,
only if all of them agree (consistent voting).
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
    Family,
    Fit,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Need,
    Node,
    NoStream,
    Note,
    Round,
    Same,
    Send,
    Steps,
    family,
    members_of,
    on,
)
from heterophony.parts import Cohort, Nets, PublicRows, Training, answers, cross_entropy

ASK = Kind("ask", to="children")
STUDENTS = Kind("students", to="parent", weights=Family("model", many="partitions"))

DEVIATIONS = (
    Deviation("networks", "one for all", "the paper's parties may have different ones, which the server must have too"),
    Deviation(
        "start",
        "each teacher and student begins with the weights that its party's network had first",
        "no weights need be drawn in a round",
    ),
    Deviation("noise", "none: FedKT-L0 of the paper", "L1 and L2 add Laplace noise to votes, for differential privacy"),
    Deviation("ties", "are won by the class with the lower number", "the paper does not say"),
    Deviation(
        "more rounds",
        "make everything anew, of other partitions",
        "the paper has one; `--rounds 1` is it",
    ),
)


class FedKT(Method):
    """Teachers vote on public rows, students learn it and are sent, and the server learns theirs. One round will do."""

    roles = ("server", "client")
    kinds = (ASK, STUDENTS)
    memory = ("start",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    serves = ("classification",)
    unused = ("cohort.weighted", "cohort.combine", "local.initial", "distil.initial")
    public = True

    partitions: Annotated[int, "s: partitions of a party's rows, with a student for each"] = 2
    teachers: Annotated[int, "t: parts of a partition, with a teacher for each"] = 5
    consistent: Annotated[bool, "a party's students count where all of them agree; else each on its own"] = True
    rows: PublicRows = PublicRows()
    local: Training = Training(epochs=20)
    distil: Training = Training(epochs=20, lr=1e-3, optimiser="adam", batch=32)
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partitions < 1 or self.teachers < 1:
            raise ValueError(f"partitions and teachers are numbers >= 1, got {self.partitions} and {self.teachers}")

    def needs(self) -> list[Need]:
        return [*super().needs(), NoStream("parts all private rows at once")]

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        start = client.vars.setdefault("start", client.weights())
        students = []
        for number in range(self.partitions):
            total = len(client.data[self.local.data])
            order = torch.randperm(total, generator=client.rng(f"partition {number}"))
            guesses = []
            for part in torch.tensor_split(order, self.teachers):
                if len(part):
                    client.load(start)
                    yield self.local.fit("model", cross_entropy, rows=part)
                    guesses.append((yield from self.guessed(client)))
            client.load(start)
            if guesses:
                yield self.learn(client, torch.stack(guesses).sum(0))
            students.append(client.weights())
        yield Mark("student")
        return STUDENTS(weights=family(students))

    @on(answers(STUDENTS), role="server")
    def fuse(self, server: Node, mail: Inbox) -> Steps:
        own, votes = server.vars.setdefault("start", server.weights()), []
        for m in mail:
            guesses = []
            for weights in members_of(m.weights).values():
                server.load(weights)
                guesses.append((yield from self.guessed(server)))
            votes.append(counted(guesses, self.consistent))
        server.load(own)
        if votes:
            every = torch.stack(votes).sum(0)
            yield Note("agreed", float((every.sum(-1) > 0).float().mean()))
            yield self.learn(server, every)
            yield Mark("global")
        server.round += 1

    def guessed(self, node: Node) -> Steps:
        """Return the vote of a node's network on each public row of the round, one-hot."""
        logits = yield self.rows.outputs(node)
        return F.one_hot(logits.argmax(-1), logits.shape[-1])

    def learn(self, node: Node, votes: Tensor) -> Fit:
        """Return the work order to learn the class with the most votes of each row. Rows without votes do not count."""
        beside = {"voted": votes.argmax(-1), "counts": (votes.sum(-1) > 0).float()}
        return self.distil.fit("model", self.voted, data="public", rows=self.rows.of(node), extra=beside)

    def voted(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the cross-entropy with the class that was voted for, mean over the rows that have one."""
        each = F.cross_entropy(nets["model"](batch.x), batch.voted, reduction="none")
        return {"model": {"ce": (batch.counts * each).sum() / batch.counts.sum().clamp_min(1)}}


def counted(guesses: list[Tensor], consistent: bool) -> Tensor:
    """Return a party's votes on each row: those of all its students, or none where they do not agree."""
    votes = torch.stack(guesses).sum(0)
    return votes * (votes == len(guesses)) if consistent else votes
