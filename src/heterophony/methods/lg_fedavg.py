"""LG-FedAvg: each client has a body of its own (local representations); the heads on top of them are averaged.

Sent by a client: the weights of its network's head after local training, and the number of its examples. Not its body.
Sent by the server: the average of the heads.

Paper: Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations, 2020.
Algorithm 1 (LG-FedAvg), without the optional losses for representations (fair or self-supervised ones).
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.fedper import FedPer

DEVIATIONS = (
    Deviation(
        "bodies",
        "may differ; those of one architecture start alike, and all with the server's head",
        "only heads travel",
    ),
    Deviation(
        "width",
        "`width` has features in groups of neighbours and writes the head out for each network's own; off unless set",
        "the paper's networks have one width; our shipped mixtures have not",
    ),
    Deviation(
        "losses, ensemble",
        "no losses for representations, no ensemble of local models for rows of nobody",
        "options in the paper; a participant here is evaluated with its own model",
    ),
)


@decides("part")
def lg_fedavg(**fedper: Any) -> FedPer:
    """FedPer the other way round: the head is averaged, the body stays with its client."""
    return FedPer(part="head", **fedper)
