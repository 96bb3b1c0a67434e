"""FedH2L: peers with different networks and different data teach each other on public data, without a server.

Sent by a peer: its softmax outputs on a batch of public rows of its own domain, which rows these are, and its accuracy.
No weights, no private rows.

Paper: Li et al., FedH2L: Federated Learning with Model and Statistical Heterogeneity, 2021. Algorithm 1; Eq. 1-2 (local
step), Eq. 3-6 (KL from each teacher weighted by its accuracy, and cross-entropy where public rows have labels: sums
over classes, means over a teacher's rows), Eq. 7-14 (projection, in closed form). `parts/mutual.py` has both phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from heterophony import (
    Deviation,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    Probabilities,
    Round,
    Rows,
    Scalar,
    Send,
    Steps,
    on,
)
from heterophony.parts import Cohort, MutualTeaching, Signal, Training, answers

TEACH = Kind(
    "teach",
    to="peers",
    probabilities=Probabilities("public", sample="sample", rows="rows"),
    accuracy=Scalar(0, 1),
    rows=Rows("public"),
)
LOCAL = Training(lr=1e-3, weight_decay=1e-4, optimiser="amsgrad", data="own", steps=1)  # its rate is beta
SAMPLE = "public rows in a signal, at most"

DEVIATIONS = (
    Deviation(
        "divisor",
        "by the teachers heard, not N - 1",
        "on a ring, in pairs or after a failure there are fewer",
    ),
    Deviation(
        "signal",
        "names its public rows (8 bytes a row) beside probabilities and accuracy",
        "the paper does not say how students know them",
    ),
    Deviation(
        "rounds",
        "a round is one global round after E local batches (`local.steps`); the paper counts the batches",
        "a round is one exchange of messages; both are equal for E = 1, the default",
    ),
    Deviation(
        "g_loc with E > 1",
        "(theta_0 - theta_E) / beta, which for SGD is the sum of the gradients",
        "the paper prints g_E - g_0; what is meant is the way gone, and its sign must be a gradient's",
    ),
    Deviation(
        "local data",
        'Private rows and the public rows of the own domain (`local.data = "own"`). `train` and `all` are options.',
        "Algorithm 1 shows private data. The unlabelled variant takes *others'* public data away, so the labelled "
        "one may have had it. On validation digits (rotated-mnist, seed 0, 500 rounds) `own` gave 86.3 % and `all` "
        "85.4 %.",
    ),
    Deviation(
        "optimisers",
        'one AMSGrad for both phases; `mutual.moments = "two"` keeps them apart',
        "the paper does not say",
    ),
    Deviation(
        "projection",
        "in closed form; options are `gem` with its margin (0.5) and eps, and `pcgrad` with the mean of both projected "
        "gradients",
        "one constraint needs no solver; whether PCGrad has the sum or the mean is not said",
    ),
    Deviation(
        "unlabelled",
        "without labels a teacher's weight is 1, or its accuracy on its own validation data",
        "its accuracy on public rows cannot be known",
    ),
    Deviation(
        "late signals",
        "The KL of a signal that comes late has the weight (1 + age) ** -0.5, its cross-entropy the full weight. In "
        "`fedh2l-async` peers never wait, and forget a signal after 20 rounds.",
        'Both are ours. The paper\'s "asynchronous" row is random pairs (`topology.kind = "pairs"`).',
    ),
)


class FedH2L(Method):
    """Peers of any architecture teach each other with soft labels on public data; no server, no weights."""

    roles = ("peer",)
    kinds = (TEACH,)
    memory = ("g_loc",)
    models = {"peer": {"model": Own()}}
    headline = "local"
    serves = ("classification",)
    unused = ("cohort.fraction", "cohort.weighted", "cohort.combine", "local.initial")
    public = True

    local: Training = LOCAL
    mutual: MutualTeaching = MutualTeaching()
    sample: Annotated[int, SAMPLE] = 32
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sample(self.sample)

    @on(Round)
    def teach(self, peer: Node) -> Steps:
        peer.vars["g_loc"] = yield from self.mutual.study(peer, self.local)
        signal = yield from self.mutual.signal(peer, self.sample)
        return _message(signal)

    @on(answers(TEACH, of="peers", late="accept"))
    def learn(self, peer: Node, mail: Inbox) -> Steps:
        newest = {m.sender: m for m in sorted(mail, key=lambda m: m.round)}
        signals = [Signal(m.probabilities, m.accuracy, m.rows, m.staleness) for m in newest.values()]
        yield from self.mutual.learn(signals, self.local, peer.vars.pop("g_loc"))
        yield Mark("local")
        peer.round += 1


class FedH2LAsync(Method):
    """FedH2L whose peers never wait: each learns from what it has heard, by age, at a pace of its own."""

    roles = ("peer",)
    kinds = (TEACH,)
    memory = ("heard",)
    models = {"peer": {"model": Own()}}
    headline = "local"
    serves = ("classification",)
    unused = ("local.initial",)
    public = True

    local: Training = LOCAL
    mutual: MutualTeaching = MutualTeaching()
    sample: Annotated[int, SAMPLE] = 32
    forget: Annotated[int, "rounds after which a signal is not used any more"] = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sample(self.sample)

    @on(Round(also=(TEACH,)))
    def step(self, peer: Node, mail: Inbox) -> Steps:
        heard = _remembered(peer, mail.also, self.forget)
        g_loc = yield from self.mutual.study(peer, self.local)
        signal = yield from self.mutual.signal(peer, self.sample)
        yield _message(signal)
        signals = [Signal(m["probabilities"], m["accuracy"], m["rows"], peer.round - m["at"]) for m in heard.values()]
        yield from self.mutual.learn(signals, self.local, g_loc)
        yield Mark("local")
        peer.round += 1


def _check_sample(sample: int) -> None:
    """Raise ValueError where a signal would have no rows."""
    if sample < 1:
        raise ValueError(f"sample is a number of rows >= 1, got {sample}")


def _message(signal: Signal) -> Send:
    """Return a signal as a message to all peers."""
    return TEACH(probabilities=signal.probabilities, accuracy=signal.accuracy, rows=signal.rows)


def _remembered(peer: Node, mail: Sequence[Message], forget: int) -> dict[str, dict[str, Any]]:
    """Return the newest signal of each teacher with the round in which it came. What is too old is forgotten."""
    known: dict[str, dict[str, Any]] = dict(peer.vars.get("heard", {}))
    for m in mail:
        known[m.sender] = {**m.body, "at": peer.round}
    recent = {sender: signal for sender, signal in sorted(known.items()) if peer.round - signal["at"] <= forget}
    peer.vars["heard"] = recent
    return recent
