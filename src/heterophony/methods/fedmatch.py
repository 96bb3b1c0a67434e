"""FedMatch: labelled private rows move one half of the weights, unlabelled public rows the other, with helpers' advice.

Sent by a client: both halves of its weights, sigma and psi, and how many labelled rows it has. No rows, no labels.
Sent by the server: the means of both halves and, to each client, the psi of its helpers: those clients whose networks
answer most like its own.

Paper: Jeong, Yoon, Yang and Hwang, Federated Semi-Supervised Learning with Inter-Client Consistency & Disjoint
Learning, ICLR 2021. Labels at client, as the authors' code has it. theta = sigma + psi. Cross-entropy on labelled rows
moves sigma alone. Unlabelled rows u whose likeliest class has at least `confidence` move psi alone, by four terms. The
first is inter-client consistency: the mean over helpers of KL(helper(u) || own(u)). The second is the cross-entropy of
the answer to an augmented u with the class that most of the helpers and the client itself vote for. The other two are
l1 |psi|_1 and l2 |sigma - psi|^2. A helper is its own psi on the receiver's sigma. Without helpers, unlabelled rows and
`begin`, it is FedAvg to the bit.
"""

from __future__ import annotations

from typing import Annotated

import torch

from heterophony import (
    CropFlip,
    Deviation,
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
from heterophony.parts import (
    Cohort,
    InterClientConsistency,
    PublicRows,
    Sparse,
    Training,
    added,
    answers,
    cross_entropy,
    nearest,
    psi_of,
    sigma_of,
)

MODEL = Kind(
    "model",
    to="children",
    sigma=Weights("model"),
    psi=Weights("model"),
    helpers=Family("model", many="helpers", fewer=True),
)
UPDATE = Kind("update", to="parent", sigma=Weights("model"), psi=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "disjoint learning",
        "the whole labelled phase, then the whole unlabelled one",
        "The authors' code takes turns by batches. Each phase moves the same half as there, and one fit is one "
        "piece of work.",
    ),
    Deviation(
        "unlabelled rows",
        "the public ones, the same for all",
        "a participant's own unlabelled rows are no view of ours",
    ),
    Deviation(
        "augmentation",
        "a crop of a padded image, flipped if `flip`; what is no image is not changed",
        "RandAugment is not here, and digits must not be flipped",
    ),
    Deviation(
        "probe",
        "clients are compared by their softmax outputs on the first `probe` public rows",
        "the code's probe is one image of noise; public rows are what the networks are asked about anyway",
    ),
    Deviation(
        "helpers",
        "come in every round (`every`); as many as are known",
        "the code sends them in every tenth round",
    ),
    Deviation(
        "traffic",
        "both halves and the helpers' psi travel whole",
        "the authors' code counts sparse differences",
    ),
    Deviation(
        "buffers",
        "BatchNorm's statistics go with psi and are not halved",
        "a variance is no sum of a client's and a helper's; the code's network has none",
    ),
    Deviation(
        "weights",
        "The labelled cross-entropy counts once. The initial network is divided into sigma and psi = 0.2 sigma.",
        "In the code the cross-entropy counts ten times, which is a matter of the rate, and psi is added to the "
        "initial network. Other defaults are the code's.",
    ),
    Deviation(
        "weight decay",
        "acts on sigma + psi, if there is any",
        "the optimiser sees the weights that the network has, which are the sum",
    ),
)


class FedMatch(Method):
    """FedAvg that also learns from unlabelled public rows, with weights in two halves and other clients as helpers."""

    roles = ("server", "client")
    kinds = (MODEL, UPDATE)
    memory = ("sigma", "psi", "known")  # "known" has for each client its psi and its answer to the probe
    headline = "global"
    serves = ("classification",)
    unused = ("local.initial", "distil.initial")
    public = True

    helpers: Annotated[int, "how many other clients advise a client"] = 2
    every: Annotated[int, "helpers come in every so many rounds"] = 1
    probe: Annotated[int, "public rows by which clients are compared"] = 32
    confidence: Annotated[float, "unlabelled rows whose likeliest class has less are not learnt from"] = 0.75
    consistency: Annotated[float, "weight of inter-client consistency: to say what the helpers say"] = 0.01
    agreement: Annotated[float, "weight of cross-entropy with the class that most vote for"] = 0.01
    l1: Annotated[float, "weight of |psi|_1, which makes psi sparse"] = 1e-4
    l2: Annotated[float, "weight of |sigma - psi|^2, which keeps the halves near each other"] = 10.0
    begin: Annotated[float, "psi begins as so much of sigma"] = 0.2
    crop: Annotated[int, "pixels around an image that is cropped; 0: images are not changed"] = 4
    flip: Annotated[bool, "half of the cropped images are flipped"] = False
    rows: PublicRows = PublicRows()
    cohort: Cohort = Cohort()
    # `local` is training on labelled rows, `distil` on unlabelled ones.
    local: Training = Training()
    distil: Training = Training(lr=1e-3)

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = (self.l1, self.l2, self.consistency, self.agreement, self.begin)
        if not all(value >= 0 for value in (self.helpers, self.crop, *weights)):
            raise ValueError("helpers, crop, l1, l2, consistency, agreement and begin are at least 0")
        if self.every < 1 or self.probe < 1:
            raise ValueError(f"every and probe are numbers >= 1, got {self.every} and {self.probe}")

    @property
    def slots(self) -> tuple[str, ...]:
        """Return the names of a client's places for helpers."""
        return tuple(f"helper-{i}" for i in range(self.helpers))

    def networks(self) -> NetworksByRole:
        return {"server": {"model": Same()}, "client": dict.fromkeys(("model", *self.slots), Same())}

    @on(Round, role="server")
    def send(self, server: Node) -> list[Send]:
        if "sigma" not in server.vars:
            share = self.begin / (1 + self.begin)
            psi = {name: share * w for name, w in server.weights().items()}
            sigma = sigma_of(server, psi)
            server.vars.update({"sigma": sigma, "psi": psi_of(server, sigma)})
        known = {} if server.round % self.every else server.vars.get("known", {})
        sends = []
        for client in self.cohort.draw(server):
            helpers = [known[name][0] for name in nearest(known, client, self.helpers)]
            sends.append(MODEL(client, sigma=server.vars["sigma"], psi=server.vars["psi"], helpers=family(helpers)))
        return sends

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
        return UPDATE(sigma=sigma, psi=psi_of(client, sigma), examples=self.local.examples(client))

    def match(self, client: Node, sigma: Named, helpers: tuple[str, ...]) -> Steps:
        """Train on unlabelled rows, which moves psi."""
        rows, public = self.rows.of(client), client.data["public"]
        crop, extra = None, {}
        if self.crop and public.x.dim() == 4:  # images
            crop = CropFlip(self.crop, self.flip)
            count = len(public) if rows is None else len(rows)
            extra = {"crop": crop.draw(count, client.rng("crop"))}
        learnt = {n: sigma[n] for n, _ in client.models["model"].named_parameters() if n in sigma}
        yield self.distil.fit(
            "model",
            InterClientConsistency(helpers, self.confidence, self.consistency, self.agreement, crop),
            data="public",
            rows=rows,
            extra=extra,
            teachers=helpers,
            transform=Sparse(self.l1, self.l2),
            aux={"sigma": learnt},
        )

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            known = dict(server.vars.get("known", {}))
            rows = torch.arange(min(self.probe, len(server.data["public"])))
            if self.helpers:
                for m in mail:
                    server.load(added(m.sigma, m.psi))
                    answer = yield Predict("model", "public", rows)
                    known[m.sender] = [dict(m.psi), answer.softmax(-1).flatten()]
            sigma, psi = self.cohort.mean(server, mail, "sigma"), self.cohort.mean(server, mail, "psi")
            server.vars.update({"sigma": sigma, "psi": psi, "known": known})
            server.load(added(sigma, psi))
        yield Mark("global")
        server.round += 1
