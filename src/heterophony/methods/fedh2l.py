"""FedH2L: peers with networks and data of their own teach each other, without a server.

Leaves a peer: its softmax outputs on a batch of public rows of its own domain, which rows they are, and its accuracy.
Equations: Algorithm 1; Eq. 1-2 (local step), Eq. 3-6 (KL from each teacher weighted by its accuracy, and cross-entropy
where public rows have labels: sums over classes, means over a teacher's rows), Eq. 7-14 (projection, in closed form).
Deviations: divided by the teachers heard, not by N - 1; the rows are named in the signal. A round is one global round
of E = `local.steps` local ones (the paper counts those); with E > 1, g_loc is (theta_0 - theta_E) / beta, for SGD the
sum of its gradients. Without labels a teacher's weight is 1, or its accuracy on its own validation data. A signal that
comes late teaches with its age; `fedh2l-async`, whose peers never wait, is ours (the paper's asynchronous variant is
random pairs, topology.kind = "pairs").
Reference: Li et al., FedH2L: Federated Learning with Model and Statistical Heterogeneity, 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony import (
    Data,
    Fit,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Need,
    Node,
    Note,
    Optimiser,
    Own,
    Predict,
    Probabilities,
    Round,
    Rows,
    Scalar,
    Steps,
    Transform,
    on,
)
from heterophony.parts import (
    Cohort,
    Gem,
    Nets,
    PCGrad,
    Project,
    Training,
    answers,
    confidence,
    cross_entropy,
    dot,
    needed_for,
    own_rows,
)

TEACH = Kind(
    "teach",
    to="peers",
    probabilities=Probabilities("public", sample="sample", rows="rows"),
    accuracy=Scalar(0, 1),
    rows=Rows("public"),
)
BETA = Training(lr=1e-3, weight_decay=1e-4, optimiser="amsgrad", data="own", steps=1)


class Signal(NamedTuple):
    """What one teacher said, and how many of the student's rounds ago."""

    probabilities: Tensor
    accuracy: float
    rows: Tensor
    age: int = 0


@dataclass(frozen=True)
class Mutual:
    """How a peer learns from the others: the global mutual optimisation of Section III-B and C."""

    eta: float | None = None  # None: the local rate, beta
    moments: Literal["one", "two"] = "one"  # optimiser states: one for both phases, or one for each
    kl: float = 1.0  # 0 is the paper's "no KL"
    ce: float = 1.0
    projection: Literal["closed", "gem", "pcgrad", "none"] = "closed"
    margin: float = 0.5  # of GEM, as is eps
    eps: float = 1e-3
    confidence: Literal["public", "validation", "one"] = "public"  # what a teacher's weight is its accuracy on
    fade: float = 0.5  # a teacher's weight falls as (1 + age) ** -fade

    def __post_init__(self) -> None:
        if min(self.eta or 0.0, self.kl, self.ce, self.margin, self.eps, self.fade) < 0:
            raise ValueError("eta, kl, ce, margin, eps and fade are at least 0")

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data."""
        return needed_for(self.confidence)

    def study(self, peer: Node, local: Training) -> Steps:
        """Local steps; returns g_loc as it was before them."""
        answer = "gradient" if local.steps == 1 else "displacement"
        fitted = yield local.fit("model", cross_entropy, keep=self._state("local"), answer=answer)
        if answer == "displacement":
            return {name: moved / local.lr for name, moved in fitted.displacement.items()}
        if fitted.gradient is None:  # it has no rows of its own, and nothing to be gone against
            return {name: torch.zeros_like(p) for name, p in peer.models["model"].named_parameters()}
        return fitted.gradient

    def signal(self, peer: Node, sample: int) -> Steps:
        """The teaching signal, on a batch of public rows of the peer's own domain."""
        mine = own_rows(peer)
        rows = mine[torch.randperm(len(mine), generator=peer.rng("teach"))[:sample]]
        logits = yield Predict("model", "public", rows)
        accuracy = yield from confidence(peer, self.confidence, rows, logits)
        return TEACH(probabilities=logits.softmax(-1), accuracy=accuracy, rows=rows)

    def learn(self, signals: Sequence[Signal], local: Training, g_loc: Mapping[str, Tensor]) -> Steps:
        """One step towards all teachers that does not go against g_loc; notes the cosine of the two gradients.

        Below zero they conflicted, and minus it is the share of g_pub that the closed projection takes away.
        """
        heard = [signal for signal in signals if len(signal.rows)]
        if not heard:
            return
        counts = torch.tensor([len(signal.rows) for signal in heard])
        trust = torch.tensor([signal.accuracy * (1 + signal.age) ** -self.fade for signal in heard])
        fitted = yield Fit(
            "model",
            self.loss,
            data="public",
            rows=torch.cat([signal.rows for signal in heard]),
            extra={
                "taught": torch.cat([signal.probabilities.float() for signal in heard]),
                "trust": trust.repeat_interleave(counts),
                "share": (1 / (len(heard) * counts)).repeat_interleave(counts),
            },
            optimiser=self._optimiser(local),
            keep=self._state("mutual"),
            transform=self._transform(),
            aux={} if self.projection == "none" else {"onto": g_loc},
            answer="gradient",
        )
        yield Note("gradients.cosine", cosine(fitted.gradient, g_loc))

    def loss(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Eq. 3-6; `share` makes a sum over rows the mean over teachers of the means over their rows."""
        student = nets["model"](batch.x).log_softmax(-1)
        apart = (torch.xlogy(batch.taught, batch.taught) - batch.taught * student).sum(-1)
        terms = {"kl": self.kl * (batch.share * batch.trust * apart).sum()}
        if "y" in batch.columns:
            terms["ce"] = self.ce * (batch.share * F.nll_loss(student, batch.y, reduction="none")).sum()
        return {"model": terms}

    def _state(self, phase: str) -> str:
        return "both" if self.moments == "one" else phase

    def _optimiser(self, local: Training) -> Optimiser:
        beta = local.build()
        return beta if self.eta is None else Optimiser(beta.name, self.eta, beta.options)

    def _transform(self) -> Transform | None:
        made: dict[str, Transform] = {"closed": Project(), "gem": Gem(self.margin, self.eps), "pcgrad": PCGrad()}
        return made.get(self.projection)


def cosine(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Of two gradients; 0 where one of them is 0."""
    norms = dot(a, a).sqrt() * dot(b, b).sqrt()
    return float(dot(a, b) / norms.clamp_min(torch.finfo(norms.dtype).tiny))


class FedH2L(Method):
    """Peers of any architecture teach each other with soft labels on public data; no server, no weights."""

    roles = ("peer",)
    kinds = (TEACH,)
    memory = ("g_loc",)
    models = {"peer": {"model": Own()}}
    headline = "local"
    unused = ("cohort.fraction", "cohort.weighted", "local.initial")
    public = True

    local: Training = BETA
    mutual: Mutual = Mutual()
    sample: int = 32  # public rows in a signal, at most
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sample(self.sample)

    @on(Round)
    def teach(self, peer: Node) -> Steps:
        peer.vars["g_loc"] = yield from self.mutual.study(peer, self.local)
        return (yield from self.mutual.signal(peer, self.sample))

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
    unused = ("local.initial",)
    public = True

    local: Training = BETA
    mutual: Mutual = Mutual()
    sample: int = 32
    forget: int = 20  # rounds after which a signal is not used any more

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_sample(self.sample)

    @on(Round(also=(TEACH,)))
    def step(self, peer: Node, mail: Inbox) -> Steps:
        heard = _remembered(peer, mail.also, self.forget)
        g_loc = yield from self.mutual.study(peer, self.local)
        yield (yield from self.mutual.signal(peer, self.sample))
        signals = [Signal(m["probabilities"], m["accuracy"], m["rows"], peer.round - m["at"]) for m in heard.values()]
        yield from self.mutual.learn(signals, self.local, g_loc)
        yield Mark("local")
        peer.round += 1


def _check_sample(sample: int) -> None:
    if sample < 1:
        raise ValueError(f"sample is a number of rows >= 1, got {sample}")


def _remembered(peer: Node, mail: Sequence[Message], forget: int) -> dict[str, dict[str, Any]]:
    """The newest signal of each teacher and the round in which it came, without the old ones; kept on the peer."""
    known = {**peer.vars.get("heard", {}), **{m.sender: {**m.body, "at": peer.round} for m in mail}}
    peer.vars["heard"] = {sender: m for sender, m in sorted(known.items()) if peer.round - m["at"] <= forget}
    kept: dict[str, dict[str, Any]] = peer.vars["heard"]
    return kept
