"""CFD: soft labels of public rows in a few bits, and of these only what has changed since they were last sent.

Sent by a client: the labels that it gives to public rows, in `up` bits a probability, and from which round it knows the
server's. No weights, no labels of private rows.
Sent by the server: a request, with the round from which it knows that client's labels; then its own, in `down` bits.

Paper: Sattler, Marban, Rischke and Samek, Communication-Efficient Federated Distillation, 2020 (CFD: Communication-
Efficient Federated Distillation via Soft-Label Quantization and Delta Coding, IEEE Transactions on Network Science and
Engineering, 2021). Soft-label quantisation that keeps sums of one, delta coding up and down, and distillation at the
server before its labels go down. What the ledger counts are the coded bytes.
"""

from __future__ import annotations

from typing import Annotated

from heterophony import (
    Deviation,
    Each,
    Global,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Own,
    Packed,
    Round,
    Scalar,
    Send,
    Steps,
    on,
)
from heterophony.parts import (
    Cohort,
    PublicRows,
    Training,
    answers,
    as_probabilities,
    cross_entropy,
    packed,
    quantised,
    soft_codes,
)

ASK = Kind("ask", to="children", known=Scalar(low=soft_codes.NEVER))
PREDICTIONS = Kind("predictions", to="parent", codes=Packed, known=Scalar(low=soft_codes.NEVER))
LABELS = Kind("labels", to="children", codes=Packed)

DEVIATIONS = (
    Deviation("bits", "1 up and 8 down unless set", "the values are ours"),
    Deviation(
        "entropy coding",
        "deflate (zlib) of the classes, with one bit, or of the levels; whole or as differences, whichever is shorter",
        "it is in every Python; a coder that knows how often which label changes would need fewer bytes",
    ),
    Deviation(
        "what both ends know",
        "each side says from which round it knows the other's labels. Differences are sent from these only.",
        "a message may be lost here; the paper's are not",
    ),
    Deviation("choice of public rows", "by chance (`rows.sample`)", "the paper also studies how to choose them"),
    Deviation(
        "networks",
        "may differ, and go on from round to round",
        "as in ds-fl; only labels travel",
    ),
    Deviation(
        "server's labels",
        "of its own network, which has learnt the clients' labels; `dual = false` sends the mean of these",
        "our reading of the paper's distillation at the server",
    ),
)


class CFD(Method):
    """Different networks label public data together; labels travel in few bits, as differences from the last ones."""

    roles = ("server", "client")
    kinds = (ASK, PREDICTIONS, LABELS)
    memory = ("own", "heard")  # the labels that a node gave last, and those that it knows of others, with their rounds
    models = {"server": {"model": Global()}, "client": {"model": Own()}}
    headline = "distilled"
    serves = ("classification",)
    unused = ("cohort.weighted", "distil.initial")
    public = True

    up: Annotated[int, "bits of a probability that a client sends, 1 to 8; 1: the most likely class"] = 1
    down: Annotated[int, "bits of a probability that the server sends, 1 to 8"] = 8
    delta: Annotated[bool, "labels are sent as differences from the last ones, where that is shorter"] = True
    dual: Annotated[bool, "the server's network learns the clients' labels, and its own go down"] = True
    rows: PublicRows = PublicRows()
    local: Training = Training()
    distil: Training = Training()
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(1 <= bits <= 8 for bits in (self.up, self.down)):
            raise ValueError(f"up and down are bits, from 1 to 8, got {self.up} and {self.down}")

    @on(Round, role="server")
    def ask(self, server: Node) -> list[Send]:
        return [ASK(client, known=soft_codes.known(server, client)) for client in self.cohort.draw(server)]

    @on(Each(ASK), role="client")
    def update(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        yield from self.local.before_first_round(client, cross_entropy)
        yield self.local.fit("model", cross_entropy)
        yield Mark("local")
        logits = yield self.rows.outputs(client)
        labels = quantised(logits.softmax(-1), self.up)
        codes = soft_codes.encoded(client, self.rows, labels, self.up, mail.known if self.delta else soft_codes.NEVER)
        yield Note("bits.up", 8 * len(codes) / max(1, len(logits)))
        return PREDICTIONS(codes=codes, known=soft_codes.known(client, mail.sender))

    @on(answers(PREDICTIONS), role="server")
    def aggregate(self, server: Node, mail: Inbox) -> Steps:
        heard = [(m, soft_codes.decoded(server, self.rows, m.sender, m.codes, self.up)) for m in mail]
        said = [(m, labels) for m, labels in heard if labels is not None]
        if len(said) < len(mail):  # a sender may send anything
            yield Note("misfit", len(mail) - len(said))
        if said:
            mean = self.cohort.of(server, [m for m, _ in said], [labels for _, labels in said])
            labels = as_probabilities(mean)
            if self.dual:
                yield self.rows.imitate(server, self.distil, labels)
                yield Mark("global")
                logits = yield self.rows.outputs(server)
                labels = logits.softmax(-1)
            labels, last = quantised(labels, self.down), soft_codes.last(server)
            whole = packed(labels, self.down)
            codes = soft_codes.encoded(server, self.rows, labels, self.down, last if self.delta else soft_codes.NEVER)
            yield Note("bits.down", 8 * len(codes) / max(1, len(labels)))
            yield LABELS([m.sender for m in mail if m.known == last], codes=codes)
            yield LABELS([m.sender for m in mail if m.known != last], codes=whole)
        server.round += 1

    @on(Each(LABELS), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        labels = soft_codes.decoded(client, self.rows, mail.sender, mail.codes, self.down)
        if labels is not None:
            yield self.rows.imitate(client, self.distil, labels)
        yield Mark("distilled")
