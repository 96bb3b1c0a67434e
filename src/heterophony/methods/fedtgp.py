"""FedTGP: FedProto whose server trains the prototypes, so that classes stay apart.

Sent by a client: for each class, the mean of its features on its private rows of that class, and which classes it has.
No weights, no rows.
Sent by the server: a trained prototype for each class that somebody has.

Paper: Zhang, Liu, Hua and Cao, FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning
for Data and Model Heterogeneity in Federated Learning, AAAI 2024. The algorithm FedTGP. A global prototype is what two
fully connected layers make of a trainable vector. Over all clients' prototypes, the server minimises -log of the
softmax over classes of their negative Euclidean distances from the global ones. To the distance from the own class's
prototype a margin is added: the largest distance between the means of two classes' prototypes, at most tau
(adaptive-margin-enhanced contrastive learning). The server's training goes on from round to round. `parts/contrast.py`
has it. Clients learn as in FedProto.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from heterophony import Deviation, decides
from heterophony.methods.fedproto import FedProto
from heterophony.parts import Cohort, Contrast

ALIKE = Cohort(weighted=False)
CONTRAST = Contrast()
PULL = "how strongly features are pulled to their prototype"

DEVIATIONS = (
    Deviation(
        "margin",
        "the largest distance between the centres of any two classes, at most tau",
        "the authors' code takes the largest of the distances to the nearest class",
    ),
    Deviation(
        "classes",
        "those that nobody has or had get no prototype",
        "untrained, it would pull at a client's first rows of that class",
    ),
    Deviation(
        "server's batch",
        "32 of the clients' prototypes. The loss is the mean over them.",
        "The code takes the clients' batch size, 10. `pull`, tau, the server's epochs and its rate are the code's.",
    ),
    Deviation(
        "divergence",
        "where the server's training diverges, the means are sent, and training begins anew in the next round",
        "prototypes that are not finite would spoil every client",
    ),
    Deviation(
        "virtual time",
        "the server's training takes none",
        "virtual time is that of work on networks (`Fit`, `Predict`)",
    ),
    Deviation("evaluation, width", "as in fedproto, with its other deviations of clients", "clients are FedProto's"),
)


@decides("cohort.weighted", "cohort.combine")
def fedtgp(
    pull: Annotated[float, PULL] = 10.0, server: Contrast = CONTRAST, cohort: Cohort = ALIKE, **fedproto: Any
) -> FedProto:
    """FedProto with prototypes that the server trains contrastively, with an adaptive margin between classes."""
    return FedProto(pull=pull, server=server, cohort=replace(cohort, weighted=False), **fedproto)
