"""FedRep: every client fits a head of its own to the common body, then the body to its head; the bodies are averaged.

Sent by a client: the weights of its network's `part` (the body, unless set) after local training, and from how many
examples they are. Its head never leaves it.
Sent by the server: the mean of these weights.

Paper: Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021. Algorithm 1
(FedRep). In each round the head is trained for `alone` epochs with the body as the server sent it, then the body for
`local.epochs` (or `local.steps`) with that head. With `alone = 0` and the whole network as `part` it is FedAvg, to the
bit.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import Deviation
from heterophony.methods.fedper import FedPer

DEVIATIONS = (
    Deviation("mean", "by examples; `weighted = false` gives the paper's plain one", "as in fedavg"),
    Deviation(
        "optimisers",
        "head and body have one each, fresh in every round",
        "a momentum of the one says nothing of the other",
    ),
    Deviation(
        "statistics",
        "BatchNorm's in the body follow the rows also while only the head learns",
        "the network is in training mode, as whenever it is trained",
    ),
    Deviation(
        "evaluation",
        "with the body that the client has just trained, not with the mean of all",
        "as in fedper, which it is compared with",
    ),
    Deviation("networks", "as in fedper: only the layers that travel must be alike", "it is FedPer, in turns"),
)
ALONE = "epochs in which only the head is trained, before only the body is"


def fedrep(alone: Annotated[int, ALONE] = 10, **fedper: Any) -> FedPer:
    """FedPer in turns: first the head alone, for some epochs, then the body alone, which is averaged."""
    return FedPer(alone=alone, **fedper)
