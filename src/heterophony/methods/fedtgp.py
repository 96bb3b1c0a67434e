"""FedTGP: FedProto whose server trains the prototypes, so that classes stay apart.

Leaves a client: for each class, the mean of its features on its private rows of that class, and which classes it has.
Leaves the server: a trained prototype for each class that somebody has. No weights, no rows, no public data.
Equations: The algorithm FedTGP. A global prototype is what two fully connected layers make of a trainable vector. The
server minimises, over all clients' prototypes, -log of the softmax over classes of their negative Euclidean distances
from the global ones, with a margin added to that from their own class's; the margin is the largest distance between the
means of two classes' prototypes, at most tau (adaptive-margin-enhanced contrastive learning). Clients learn as in
FedProto. What the server trains goes on from round to round.
Deviations: those of FedProto. The authors' code takes for the margin the largest of the distances of each class from
its nearest one, not of all. Classes that nobody has or had get no prototype. The loss is a mean over the batch. The
weight of the pull (10), tau (100), the server's epochs (100) and rate (0.01) are those of the authors' code; the batch
is ours. The server's training takes no virtual time. A training that diverges leaves the means.
Reference: Zhang, Liu, Hua and Cao, FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive
Learning for Data and Model Heterogeneity in Federated Learning, AAAI 2024.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heterophony.methods.fedproto import FedProto
from heterophony.parts import Cohort, Contrast

ALIKE = Cohort(weighted=False)
CONTRAST = Contrast()


def fedtgp(pull: float = 10.0, server: Contrast = CONTRAST, cohort: Cohort = ALIKE, **fedproto: Any) -> FedProto:
    """FedProto with prototypes that the server trains contrastively, with an adaptive margin between classes."""
    return FedProto(pull=pull, server=server, cohort=replace(cohort, weighted=False), **fedproto)


fedtgp.fixed = ("cohort.weighted",)  # type: ignore[attr-defined]
