"""What peers do who teach each other on public rows: the two phases of FedH2L (Section III-B and C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data
from heterophony.kernel.needs import Need
from heterophony.kernel.node import Node
from heterophony.kernel.optimisers import Optimiser
from heterophony.kernel.work import Fit, Note, Predict, Steps, Transform
from heterophony.parts.aggregate import dot
from heterophony.parts.losses import Nets, cross_entropy
from heterophony.parts.public import confidence, needed_for, own_rows
from heterophony.parts.training import Training
from heterophony.parts.transforms import Gem, PCGrad, Project


class Signal(NamedTuple):
    """What a teacher says of some public rows, and how many of the student's rounds ago it said it."""

    probabilities: Tensor
    accuracy: float
    rows: Tensor
    age: int = 0


@dataclass(frozen=True)
class MutualTeaching:
    """How a peer trains on its own data, teaches others and learns from them.

    In a round a method calls `study`, sends `signal`, and calls `learn` with what it has heard.
    """

    eta: Annotated[float | None, "rate of learning from teachers; none: that of local training (beta)"] = None
    moments: Annotated[Literal["one", "two"], "states of the optimiser: one for both phases, or one for each"] = "one"
    kl: Annotated[float, 'weight of KL from the teachers; 0 is the paper\'s "no KL"'] = 1.0
    ce: Annotated[float, "weight of cross-entropy with the labels of the teachers' rows"] = 1.0
    projection: Annotated[
        Literal["closed", "gem", "pcgrad", "none"], "how g_pub is kept from going against g_loc; `closed` is Eq. 14"
    ] = "closed"
    margin: Annotated[float, "of `gem`: the least v where the gradients conflict"] = 0.5
    eps: Annotated[float, "of `gem`: what is added to the diagonal of its Gram matrix"] = 1e-3
    confidence: Annotated[
        Literal["public", "validation", "one"], "on which data the accuracy is taken by which a teacher counts"
    ] = "public"
    fade: Annotated[float, "how fast a late signal's KL loses weight: (1 + age) ** -fade"] = 0.5

    def __post_init__(self) -> None:
        if min(self.eta or 0.0, self.kl, self.ce, self.margin, self.eps, self.fade) < 0:
            raise ValueError("eta, kl, ce, margin, eps and fade are at least 0")

    def reads(self, name: str) -> Mapping[str, str]:
        """Return the views that it reads."""
        return {"public": "public data", "mine": f"public rows of one's own domain, in {name}"}

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data."""
        return needed_for(self.confidence)

    def study(self, peer: Node, local: Training) -> Steps:
        """Train on the peer's own data (Eq. 1-2), and return the gradient g_loc of it."""
        now = local.at(peer)
        answer = "gradient" if now.steps == 1 else "displacement"
        fitted = yield local.fit("model", cross_entropy, keep=self._state("local"), answer=answer)
        if answer == "displacement" and now.lr:
            return {name: moved / now.lr for name, moved in fitted.displacement.items()}
        if fitted.gradient is None:  # without rows of its own, or at a rate of 0, there is nothing to go against
            return {name: torch.zeros_like(p) for name, p in peer.models["model"].named_parameters()}
        return fitted.gradient

    def signal(self, peer: Node, sample: int) -> Steps:
        """Return what the peer teaches, on `sample` public rows of its own domain."""
        own = own_rows(peer)
        rows = own[torch.randperm(len(own), generator=peer.rng("teach"))[:sample]]
        logits = yield Predict("model", "public", rows)
        accuracy = yield from confidence(peer, self.confidence, rows, logits)
        return Signal(logits.softmax(-1), accuracy, rows)

    def learn(self, signals: Sequence[Signal], local: Training, g_loc: Mapping[str, Tensor]) -> Steps:
        """Take one step towards all teachers that does not go against g_loc.

        The cosine of g_pub and g_loc is noted. Where it is negative they conflict. The closed projection then takes
        away a share of g_pub: minus the cosine.
        """
        heard = [signal for signal in signals if len(signal.rows)]
        if not heard:
            return
        counts = torch.tensor([len(signal.rows) for signal in heard])
        trust = torch.tensor([signal.accuracy * (1 + signal.age) ** -self.fade for signal in heard])
        # The batch is the rows of all teachers, one after the other. Each row brings these columns.
        columns = {
            "taught": torch.cat([signal.probabilities.float() for signal in heard]),
            "trust": trust.repeat_interleave(counts),
            "share": (1 / (len(heard) * counts)).repeat_interleave(counts),
        }
        fitted = yield Fit(
            "model",
            self.loss,
            data="public",
            rows=torch.cat([signal.rows for signal in heard]),
            extra=columns,
            **self._optimiser(local),
            keep=self._state("mutual"),
            transform=self._transform(),
            aux={} if self.projection == "none" else {"onto": g_loc},
            answer="gradient",
        )
        yield Note("gradients.cosine", cosine(fitted.gradient, g_loc))

    def loss(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return Eq. 3-6: KL from each teacher, weighted by its accuracy, and cross-entropy where there are labels.

        With `share`, a sum over rows is the mean over teachers of the means over their rows.
        """
        student = nets["model"](batch.x).log_softmax(-1)
        kl = (torch.xlogy(batch.taught, batch.taught) - batch.taught * student).sum(-1)
        terms = {"kl": self.kl * (batch.share * batch.trust * kl).sum()}
        if "y" in batch.columns:
            ce = F.nll_loss(student, batch.y, reduction="none")
            terms["ce"] = self.ce * (batch.share * ce).sum()
        return {"model": terms}

    def _state(self, phase: str) -> str:
        """Return the name under which a phase's optimiser is kept."""
        return "both" if self.moments == "one" else phase

    def _optimiser(self, local: Training) -> dict[str, Any]:
        """Return what an order says of the optimiser: that of local training, with the rate `eta` if there is one."""
        if local.varies:
            return {"own": lambda peer: {"optimiser": self._rated(local.built_at(peer))}}
        return {"optimiser": self._rated(local.build())}

    def _rated(self, beta: Optimiser) -> Optimiser:
        """Return an optimiser with the rate `eta`, if there is one."""
        return beta if self.eta is None else replace(beta, lr=self.eta, changing=False)

    def _transform(self) -> Transform | None:
        """Return what is done to g_pub, with g_loc as `onto` (Eq. 7-14)."""
        made: dict[str, Transform] = {"closed": Project(), "gem": Gem(self.margin, self.eps), "pcgrad": PCGrad()}
        return made.get(self.projection)


def cosine(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Return the cosine of two gradients, and 0 where one of them is 0."""
    norms = dot(a, a).sqrt() * dot(b, b).sqrt()
    return float(dot(a, b) / norms.clamp_min(torch.finfo(norms.dtype).tiny))
