"""FedMatch: labelled private rows move one half of the weights, unlabelled public rows the other, with helpers' advice.

Leaves a client: both halves of its weights, sigma and psi, and from how many labelled rows they are. Leaves the server:
their means and, to each client, the psi of those clients whose networks answer most like its own (helpers).
Equations: labels at client, as the authors' code has them. theta = sigma + psi. Cross-entropy on labelled rows moves
sigma alone. On unlabelled rows u whose likeliest class has at least `confidence`, psi alone is moved by: inter-client
consistency, the mean over helpers of KL(helper(u) || own(u)), and cross-entropy of the answer to an augmented u with
the class that most of oneself and the helpers vote for; and by l1 |psi|_1 + l2 |sigma - psi|^2. A helper is its own psi
on the receiver's sigma.
Deviations: of a round's two phases one comes after the other, not in turns of a batch. Cross-entropy on labelled rows
has weight 1 (the authors' code: 10). Unlabelled rows are the public ones, the same for all. The augmentation is a crop
of padded images, which may flip them, not RandAugment; what is no image is not changed. Helpers are the nearest by
softmax outputs on the first public rows; the code's probe is noise. Helpers come every round (the code: every tenth).
Tensors travel whole; the code counts sparse differences. Float buffers (BatchNorm's statistics)
are not halved and go with psi. Weight decay, if any, acts on sigma + psi. Other defaults are the code's; the initial
network is divided, not enlarged. Without helpers, unlabelled rows and `begin`, it is FedAvg to the bit.
Reference: Jeong, Yoon, Yang and Hwang, Federated Semi-Supervised Learning with Inter-Client Consistency & Disjoint
Learning, ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from heterophony import (
    CropFlip,
    Data,
    Each,
    Family,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Named,
    NetworksByRole,
    Node,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    family,
    members_of,
    on,
)
from heterophony.parts import Cohort, Nets, PublicRows, Sparse, Training, answers, cross_entropy

MODEL = Kind(
    "model",
    to="children",
    sigma=Weights("model"),
    psi=Weights("model"),
    helpers=Family("model", many="helpers", fewer=True),
)
UPDATE = Kind("update", to="parent", sigma=Weights("model"), psi=Weights("model"), examples=Scalar(low=0))


@dataclass(frozen=True)
class Unlabelled:
    """What unlabelled rows ask of a network: to say what its helpers say, and the same of a changed row."""

    helpers: tuple[str, ...]
    confidence: float
    consistency: float
    agreement: float
    crop: CropFlip | None

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        said = nets["model"](batch.x).log_softmax(-1)
        advice = [nets[name](batch.x).log_softmax(-1) for name in self.helpers]
        sure = (said.detach().amax(-1).exp() >= self.confidence).to(said)
        share = sure / sure.sum().clamp_min(1)
        votes = sum((voted(a) for a in advice), start=voted(said.detach()))
        x = batch.x if self.crop is None else self.crop.apply(batch.x, batch.crop)
        changed = nets["model"](x).log_softmax(-1)
        terms = {"agreement": -self.agreement * (share * (voted(votes) * changed).sum(-1)).sum()}
        if advice:
            apart = sum(((a.exp() * (a - said)).sum(-1) for a in advice), start=torch.zeros_like(share)) / len(advice)
            terms["consistency"] = self.consistency * (share * apart).sum()
        return {"model": terms}


class FedMatch(Method):
    """FedAvg that learns from unlabelled public rows too: weights in two halves, and other clients' as helpers."""

    roles = ("server", "client")
    kinds = (MODEL, UPDATE)
    memory = ("sigma", "psi", "known")  # the means; and by client its psi and what it answers to the probe
    headline = "global"
    unused = ("local.initial", "distil.initial")
    public = True

    helpers: int = 2
    every: int = 1  # helpers come in every so many rounds
    probe: int = 32  # public rows by which clients are compared
    confidence: float = 0.75  # rows whose likeliest class has less are not learnt from
    consistency: float = 0.01  # the weight of what helpers say
    agreement: float = 0.01  # and of the class that is voted for
    l1: float = 1e-4
    l2: float = 10.0
    begin: float = 0.2  # psi begins as so much of sigma
    crop: int = 4  # pixels around an image that is cropped; 0: not changed
    flip: bool = False
    rows: PublicRows = PublicRows()
    cohort: Cohort = Cohort()
    local: Training = Training()  # on labelled rows
    distil: Training = Training(lr=1e-3)  # on unlabelled rows

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = (self.l1, self.l2, self.consistency, self.agreement, self.begin)
        if not all(value >= 0 for value in (self.helpers, self.crop, *weights)):
            raise ValueError("helpers, crop, l1, l2, consistency, agreement and begin are at least 0")
        if self.every < 1 or self.probe < 1:
            raise ValueError(f"every and probe are numbers >= 1, got {self.every} and {self.probe}")

    @property
    def slots(self) -> tuple[str, ...]:
        """A client's places for helpers."""
        return tuple(f"helper-{i}" for i in range(self.helpers))

    def networks(self) -> NetworksByRole:
        return {"server": {"model": Same()}, "client": dict.fromkeys(("model", *self.slots), Same())}

    @on(Round, role="server")
    def send(self, server: Node) -> list[Send]:
        if "sigma" not in server.vars:
            share = self.begin / (1 + self.begin)
            sigma = sigma_of(server, {name: share * w for name, w in server.weights().items()})
            server.vars.update({"sigma": sigma, "psi": psi_of(server, sigma)})
        sigma, psi = server.vars["sigma"], server.vars["psi"]
        known, asked = server.vars.get("known", {}), self.cohort.draw(server)
        if server.round % self.every:
            known = {}
        advice = {client: family([known[name][0] for name in nearest(known, client, self.helpers)]) for client in asked}
        return [MODEL(client, sigma=sigma, psi=psi, helpers=helpers) for client, helpers in advice.items()]

    @on(Each(MODEL), role="client")
    def learn(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(added(mail.sigma, mail.psi))
        yield self.local.fit("model", cross_entropy)
        sigma = sigma_of(client, mail.psi)
        helpers = members_of(mail.helpers)
        for i, psi in helpers.items():
            client.load(added(mail.sigma, psi), self.slots[i])
        yield from self.match(client, sigma, self.slots[: len(helpers)])
        return UPDATE(sigma=sigma, psi=psi_of(client, sigma), examples=len(client.data[self.local.data]))

    def match(self, client: Node, sigma: Named, helpers: tuple[str, ...]) -> Steps:
        """The unsupervised phase, which moves psi."""
        rows, public = self.rows.of(client), client.data["public"]
        crop, extra = None, {}
        if self.crop and public.x.dim() == 4:
            crop = CropFlip(self.crop, self.flip)
            extra = {"crop": crop.draw(len(public) if rows is None else len(rows), client.rng("crop"))}
        loss = Unlabelled(helpers, self.confidence, self.consistency, self.agreement, crop)
        learnt = {n: sigma[n] for n, _ in client.models["model"].named_parameters() if n in sigma}
        options = {"rows": rows, "extra": extra, "teachers": helpers, "aux": {"sigma": learnt}}
        yield self.distil.fit("model", loss, data="public", transform=Sparse(self.l1, self.l2), **options)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            known = dict(server.vars.get("known", {}))
            rows = torch.arange(min(self.probe, len(server.data["public"])))
            for m in mail if self.helpers else ():
                server.load(added(m.sigma, m.psi))
                answer = yield Predict("model", "public", rows)
                known[m.sender] = [dict(m.psi), answer.softmax(-1).flatten()]
            sigma, psi = self.cohort.mean(mail, "sigma"), self.cohort.mean(mail, "psi")
            server.vars.update({"sigma": sigma, "psi": psi, "known": known})
            server.load(added(sigma, psi))
        yield Mark("global")
        server.round += 1


def voted(scores: Tensor) -> Tensor:
    """One for the class with the highest score, the first of equals, and zero for the others."""
    return (scores.argmax(-1, keepdim=True) == torch.arange(scores.shape[-1], device=scores.device)).to(scores)


def added(sigma: Named, psi: Named) -> dict[str, Tensor]:
    return {name: sigma[name] + psi[name] for name in sigma}


def sigma_of(node: Node, psi: Named) -> dict[str, Tensor]:
    """The model's weights without psi. Buffers are no sums: psi has all of them."""
    learnt = dict(node.models["model"].named_parameters())
    return {n: w - psi[n] if n in learnt else torch.zeros_like(w) for n, w in node.weights().items()}


def psi_of(node: Node, sigma: Named) -> dict[str, Tensor]:
    """The model's weights without sigma."""
    return {name: w - sigma[name] for name, w in node.weights().items()}


def nearest(known: Mapping[str, tuple[Named, Tensor]], client: str, count: int) -> list[str]:
    """The other clients whose answers to the probe are nearest to a client's; none for one that is not known."""
    if client not in known:
        return []
    own = known[client][1]
    gaps = {name: float((answer - own).norm()) for name, (_, answer) in known.items() if name != client}
    order = sorted(gaps, key=lambda name: (gaps[name] if math.isfinite(gaps[name]) else math.inf, name))
    return order[:count]
