"""Peers without a server (FedH2L): soft labels on public rows, learned with a projected gradient."""

import torch
import torch.nn.functional as F

from heterophony import Every, Fit, Kind, Mark, Method, Predict, Probabilities, Round, Rows, Scalar, on
from heterophony.parts.losses import cross_entropy
from heterophony.parts.optimisers import adam
from heterophony.parts.transforms import Project

TEACH = Kind("teach", to="peers", probabilities=Probabilities, accuracy=Scalar(0, 1), rows=Rows("public"))


def mimic(nets, batch):
    student = nets["model"](batch.x).log_softmax(-1)
    soft = (batch.taught * (batch.taught.clamp_min(1e-12).log() - student)).sum(-1)
    return {"model": {"kl": (batch.trust * soft).mean(), "ce": F.nll_loss(student, batch.y)}}


class FedH2L(Method):
    roles = ("peer",)
    kinds = (TEACH,)
    memory = ("gradient",)
    batch: int = 8
    quorum: float = 1
    deadline: float | None = None

    @on(Round)
    def teach(self, peer):
        local = yield Fit(
            "model",
            cross_entropy,
            steps=1,
            batch=self.batch,
            optimiser=adam(0.01),
            keep="both",
            answer="gradient",
        )
        peer.vars["gradient"] = local.gradient
        rows = torch.randperm(len(peer.data["public"]), generator=peer.rng("public"))[: self.batch]
        logits = yield Predict("model", "public", rows)
        accuracy = (logits.argmax(-1) == peer.data["public"].y[rows]).float().mean()
        return TEACH(probabilities=logits.softmax(-1), accuracy=accuracy, rows=rows)

    @on(Every(TEACH, of="peers", quorum="quorum", deadline="deadline"))
    def learn(self, peer, mail):
        if mail:
            trust = torch.cat([torch.full((len(m.rows),), m.accuracy) for m in mail])
            yield Fit(
                "model", mimic, data="public", rows=torch.cat([m.rows for m in mail]),
                extra={"taught": torch.cat([m.probabilities for m in mail]), "trust": trust},
                optimiser=adam(0.01), keep="both", transform=Project(), aux={"onto": peer.vars["gradient"]},
            )  # fmt: skip
        yield Mark("local")
        peer.round += 1

    def traffic(self, federation, rounds):
        peers = len(federation.topology.roles)
        talks = peers - peers % 2 if federation.topology.pairs else peers * (peers - 1)
        return {"teach": rounds * talks * (self.batch * 4 * 4 + 8 + self.batch * 8)}
