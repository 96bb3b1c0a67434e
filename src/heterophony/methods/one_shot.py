"""One-shot federated learning: clients train to the end, once; the server distils an ensemble of the best of them.

Sent by a client: its weights, how many examples it has, and how good it is on its validation rows, if that is asked.
Sent by the server: a request to train. Its own model stays there.

Paper: Guha, Talwalkar and Smith, One-Shot Federated Learning, 2019. One round. Local models are chosen by validation
(`choose = validation`), by the number of examples (`data`), at random, or all of them. The ensemble is the mean of
their outputs. It is distilled into one model on unlabelled public rows.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch

from heterophony import (
    Architectures,
    Deviation,
    Each,
    Global,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Need,
    Node,
    Note,
    Own,
    Predict,
    Round,
    Scalar,
    Send,
    Steps,
    Validation,
    Weights,
    on,
)
from heterophony.parts import (
    Cohort,
    PublicRows,
    Training,
    answers,
    as_probabilities,
    by_architecture,
    cross_entropy,
)

ASK = Kind("ask", to="children")
MODEL = Kind("model", to="parent", weights=Weights, examples=Scalar(low=0), score=Scalar(low=0, high=1))

DEVIATIONS = (
    Deviation(
        "networks",
        "of any architecture that the server has too; outputs are combined after the softmax",
        "the paper's experiments have support vector machines, and the mean of their outputs",
    ),
    Deviation(
        "distillation",
        "cross-entropy with the mean of the softmax outputs, on public rows",
        "the paper has it for its machines; rows may be unlabelled here as there",
    ),
    Deviation(
        "score",
        "accuracy on the client's validation rows; the best `members` are chosen",
        "the paper has a limit on the score, and on the number of examples, beside a number of members",
    ),
    Deviation(
        "more rounds",
        "go on: clients train on, and the server distils the new ensemble into its model",
        "the paper has one; `--rounds 1` is it",
    ),
)


class OneShot(Method):
    """Everyone trains alone; the server distils an ensemble of the best models into one. One round is all it needs."""

    roles = ("server", "client")
    kinds = (ASK, MODEL)
    models = {"server": {"*": Architectures(), "model": Global()}, "client": {"model": Own()}}
    headline = "global"
    serves = ("classification",)
    unused = ("cohort.weighted", "distil.initial")
    public = True

    choose: Annotated[Literal["validation", "data", "random", "all"], "whose models are in the ensemble"] = "data"
    members: Annotated[int, "models in the ensemble, at most; of no meaning where all are"] = 10
    rows: PublicRows = PublicRows()
    local: Training = Training(epochs=20)
    distil: Training = Training(epochs=20, lr=1e-3, optimiser="adam", batch=128)
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 1:
            raise ValueError(f"members is a number of models >= 1, got {self.members}")

    def needs(self) -> list[Need]:
        judging: list[Need] = [Validation("choose = 'validation'")] if self.choose == "validation" else []
        return [*super().needs(), *judging]

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.before_first_round(client, cross_entropy)
        yield self.local.fit("model", cross_entropy)
        yield Mark("local")
        score = 0.0
        if self.choose == "validation" and len(client.data["validation"]):
            logits = yield Predict("model", "validation")
            score = float((logits.argmax(-1) == client.data["validation"].y).float().mean())
        return MODEL(weights=client.weights(), examples=self.local.examples(client), score=score)

    @on(answers(MODEL), role="server")
    def fuse(self, server: Node, mail: Inbox) -> Steps:
        chosen, said = self.chosen(server, mail), []
        yield Note("ensemble", len(chosen))
        student, speakers = server.weights(), []
        for slot, members in by_architecture(server, chosen).items():
            for m in members:
                server.load(m.weights, slot)
                logits = yield Predict(slot, "public", self.rows.of(server))
                said.append(logits.softmax(-1))
                speakers.append(m)
        server.load(student)  # a teacher of its architecture may have had its place
        if said:
            labels = as_probabilities(self.cohort.of(server, speakers, said))
            yield self.rows.imitate(server, self.distil, labels)
            yield Mark("global")
        server.round += 1

    def chosen(self, server: Node, mail: Inbox) -> list[Message]:
        """Return the models of the ensemble, in the order in which they were asked for."""
        if self.choose == "all":
            return list(mail)
        if self.choose == "random":
            order = torch.randperm(len(mail), generator=server.rng("members")).tolist()
        else:
            order = sorted(
                range(len(mail)), key=lambda i: -(mail[i].score if self.choose == "validation" else mail[i].examples)
            )
        return [mail[i] for i in sorted(order[: self.members])]
