"""FCCL in its authors' code: logits are exchanged for every public batch, not once a round.

Sent by a client: its logits on one public batch that everyone knows by seed. No rows, no labels and no weights.
Sent by the server: the average of the logits, and of how many clients it is.

Paper: Huang et al., Learn from Others and Be Yourself in Heterogeneous Federated Learning, CVPR 2022, and the authors'
code. Eq. 1-7 are those of `fccl`. For every public batch Z-bar is made anew: of the present logits of the others, and
of the previous round's model of the client itself. A new optimiser makes the step on it. A round here is one such
exchange, and `local_every` of them are a round of the code, which ends with the local update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import torch
from torch import Tensor

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Mark,
    Message,
    Method,
    Node,
    Own,
    Predict,
    Round,
    Send,
    Steps,
    Sum,
    on,
    senders,
)
from heterophony.methods.fccl import ADAM, ASK, CONSENSUS, LOGITS, NO_PRETRAINING, check_options
from heterophony.parts import (
    Cohort,
    CollaborativeLoss,
    PublicRows,
    Training,
    answers,
    as_sent,
    full_batches,
    note_correlations,
    older_selves,
)

DEVIATIONS = (
    Deviation(
        "rounds",
        "one round is one public batch, nine of them (`local_every`) one of the code's: 40 there are `--rounds 360`",
        "a round is one exchange of messages",
    ),
    Deviation(
        "public batches",
        "each drawn from all public rows, not one after the other in a shuffled order",
        "everyone names a round's rows by its number alone",
    ),
    Deviation(
        "forward passes",
        "logits that are sent come from evaluation mode; with `training_mode` from training mode, as in the code",
        "with running statistics refreshed (`local.refresh`) evaluation mode is what is tested",
    ),
    Deviation(
        "correlation matrix",
        "that of Eq. 1, as in `fccl`",
        "the code's is (N - 1)/N of it, 511/512 for its batch",
    ),
)


class FCCLCode(Method):
    """FCCL as in its authors' code: logits are exchanged for every public batch, so that nine rounds are one there."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    models = {"client": {"model": Own(), "previous": Own(), "pretrained": Own()}}
    memory = ("pretrained", "sent")
    headline = "local"
    serves = ("classification",)
    unused = (
        "cohort.weighted",
        "cohort.combine",
        "pretrain.initial",
        "collaborate.initial",
        "local.initial",
        "local.private",
    )
    public = True
    correlates = True

    lambda_col: Annotated[float, "weight of what is off the diagonal, in Eq. 2"] = 0.0051
    lambda_loc: Annotated[float, "weight of both older models, in Eq. 7"] = 1.0
    rows: PublicRows = PublicRows(sample=512)
    half: Annotated[bool, "logits travel as float16"] = False
    training_mode: Annotated[bool, "logits that are sent come from training mode, as in the authors' code"] = False
    local_every: Annotated[int, "local updates in every so many rounds"] = 9
    pretrain: Training = NO_PRETRAINING
    collaborate: Training = ADAM
    local: Training = ADAM
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self.lambda_col, self.lambda_loc, self.local_every)

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from older_selves.begin(client, self.pretrain)
        logits = yield self.rows.outputs(client, self.training_mode)
        if self.training_mode:  # asked again, BatchNorm would move again
            client.vars["sent"] = logits
        return LOGITS(logits=as_sent(logits, self.half))

    def sums(self) -> Sum:
        return self.cohort.sum(LOGITS, "logits")

    @on(answers(LOGITS), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            heard = senders(mail)
            mean = self.cohort.tensor(server, mail, "logits")
            yield CONSENSUS(heard, logits=as_sent(mean, self.half), heard=len(heard))
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        rows = self.rows.of(client)
        present = client.vars.pop("sent") if self.training_mode else (yield Predict("model", "public", rows))
        previous = yield Predict("previous", "public", rows)
        # In the mean, one's own logits make room for those of the previous model.
        zbar = mail.logits.float() + (previous - present) / mail.heard
        loss = CollaborativeLoss(self.lambda_col)
        for batch in self.batches(client, len(zbar)):
            chosen = batch if rows is None else rows[batch]
            extra = {"zbar": zbar[batch]}
            # A piece of work for each batch, because each has a new optimiser.
            yield self.collaborate.fit("model", loss, data="public", rows=chosen, extra=extra, epochs=1, batch=None)
        yield from note_correlations(client, rows, zbar)
        if older_selves.due(client, self.local_every):
            yield from older_selves.update(client, self.local, self.lambda_loc)
        yield Mark("local")

    def batches(self, client: Node, rows: int) -> Iterator[Tensor]:
        """Yield the places of each public batch, of all epochs, in a shuffled order."""
        how = self.collaborate.at(client)
        size, draw = how.batch or rows, client.rng("public batches")
        whole = full_batches(how.batch, rows)
        for _ in range(how.epochs):
            for batch in torch.split(torch.randperm(rows, generator=draw), size):
                if len(batch) == size or not whole:
                    yield batch
