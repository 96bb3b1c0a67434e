"""FCCL: clients correlate their outputs on public data, and do not forget while they train on their own.

Sent by a client: its logits on unlabelled public rows that everyone knows by seed. With `averaging`, which is for one
network for all, its weights too. No rows and no labels.
Sent by the server: the average of the logits, and of how many clients it is. With `averaging`, the mean of the weights.

Paper: Huang et al., Learn from Others and Be Yourself in Heterogeneous Federated Learning, CVPR 2022. Algorithm 1;
Eq. 1-2 (cross-correlation of standardised logits; on the diagonal to +1, off it to -1, weighted by lambda_col), Eq. 3-7
(cross-entropy and KL from the previous round's and the pretrained model, weighted by lambda_loc; KL summed over
classes, mean over the batch). Table 3: parameters are averaged between the two phases (`fccl-homogeneous`).
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Kind,
    Logits,
    Mark,
    Message,
    Method,
    NetworksByRole,
    Node,
    Own,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    decides,
    on,
)
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

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public", "rows.sample"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public", "rows.sample"), heard=Scalar(low=1))
MODEL = Kind("model", to="parent", weights=Weights("model"))
MEAN = Kind("mean", to="children", weights=Weights("model"))
ADAM = Training(lr=1e-3, optimiser="adam", batch=512)
NO_PRETRAINING = Training(epochs=0, lr=1e-3, optimiser="adam", batch=512)

DEVIATIONS = (
    Deviation(
        "Z-bar",
        "once a round (Algorithm 1); per public batch with `sample` and `local_every`, as `fccl-code` has them",
        "the authors' code refreshes it per batch",
    ),
    Deviation(
        "forward passes",
        "logits that are sent come from evaluation mode; `training_mode` is an option",
        "the paper does not say; the authors' code has training mode",
    ),
    Deviation(
        "correlation matrix",
        "That of Eq. 1, with a diagonal of one for equal logits.",
        "The authors' code divides by deviations over N - 1, then by N. So its matrix is (N - 1)/N of ours, 511/512 "
        "for its batch.",
    ),
    Deviation(
        "short last public batch",
        "left out where there is a full one",
        "its correlations would be noise; the code uses full batches",
    ),
    Deviation(
        "mean of parameters",
        "Not weighted. All start alike. Who is too late for it does not train in that round (`fccl-homogeneous`).",
        'Table 3 says "averaging". A mean of different starts means nothing.',
    ),
    Deviation(
        "Figure 5",
        "correlation of each with the mean of the others, at the end of a run, private data = training rows",
        'the paper says "with other models", not which',
    ),
)


class FCCL(Method):
    """Logits on unlabelled public data are correlated class by class; local training remembers two older selves."""

    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS, MODEL, MEAN)
    models = {"client": {"model": Own(), "previous": Own(), "pretrained": Own()}}
    memory = ("pretrained",)
    headline = "local"
    serves = ("classification",)
    unused = ("cohort.weighted", "pretrain.initial", "collaborate.initial", "local.initial", "local.private")
    public = True
    correlates = True

    lambda_col: Annotated[float, "weight of what is off the diagonal, in Eq. 2"] = 0.0051
    lambda_loc: Annotated[float, "weight of both older models, in Eq. 7"] = 1.0
    rows: PublicRows = PublicRows()
    half: Annotated[bool, "logits travel as float16"] = False
    training_mode: Annotated[bool, "logits that are sent come from training mode, as in the authors' code"] = False
    averaging: Annotated[bool, "of parameters, before local updates; needs one network for all"] = False
    local_every: Annotated[int, "local updates in every so many rounds"] = 1
    pretrain: Training = NO_PRETRAINING
    collaborate: Training = ADAM
    local: Training = ADAM
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self.lambda_col, self.lambda_loc, self.local_every)

    def networks(self) -> NetworksByRole:
        if not self.averaging:
            return self.models
        alike = Same(start="alike")
        return {"server": {"model": alike}, "client": dict.fromkeys(self.models["client"], alike)}

    def sends(self) -> tuple[Kind, ...]:
        return self.kinds if self.averaging else (ASK, LOGITS, CONSENSUS)

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def speak(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from older_selves.begin(client, self.pretrain)
        logits = yield self.rows.outputs(client, self.training_mode)
        return LOGITS(logits=as_sent(logits, self.half))

    @on(answers(LOGITS), role="server")
    def agree(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            heard = tuple(m.sender for m in mail)
            zbar = self.cohort.tensor(server, mail, "logits")
            yield CONSENSUS(heard, logits=as_sent(zbar, self.half), heard=len(heard))
            if self.averages_now(server):
                server.groups["heard"] = heard
                return  # the round ends with `merge`
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        """Make the collaborative update; without averaging, the local one too."""
        rows, zbar = self.rows.of(client), mail.logits.float()
        yield self.collaborate.fit(
            "model",
            CollaborativeLoss(self.lambda_col),
            data="public",
            rows=rows,
            extra={"zbar": zbar},
            drop_last=full_batches(self.collaborate.at(client).batch, len(zbar)),
        )
        yield from note_correlations(client, rows, zbar)
        if self.averages_now(client):
            return MODEL(weights=client.weights())
        yield from self.practise(client)

    @on(answers(MODEL, of="heard"), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail, by=None))
            yield MEAN([m.sender for m in mail], weights=server.weights())
        server.round += 1

    @on(Each(MEAN), role="client")
    def take(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        yield from self.practise(client)

    def practise(self, client: Node) -> Steps:
        """Make the local update, in the rounds that have one."""
        if older_selves.due(client, self.local_every):
            yield from older_selves.update(client, self.local, self.lambda_loc)
        yield Mark("local")

    def averages_now(self, node: Node) -> bool:
        """Return whether parameters are averaged in this round."""
        return self.averaging and older_selves.due(node, self.local_every)


@decides("averaging")
def fccl_homogeneous(**fccl: Any) -> FCCL:
    """FCCL between participants with the same network: their parameters are averaged before local updates."""
    return FCCL(averaging=True, **fccl)


def check_options(lambda_col: float, lambda_loc: float, local_every: int) -> None:
    """Raise where an option is out of its range."""
    if not min(lambda_col, lambda_loc) >= 0:
        raise ValueError(f"lambda_col and lambda_loc are weights >= 0, got {lambda_col} and {lambda_loc}")
    if local_every < 1:
        raise ValueError(f"local_every is a whole number >= 1, got {local_every}")
