"""FedBN: FedAvg whose clients keep their BatchNorm layers to themselves.

Sent by a client: the weights of its network but for BatchNorm's layers after local training, and from how many examples
they are. Neither scales and shifts nor statistics of these layers leave it.
Sent by the server: the mean of these weights.

Paper: Li, Jiang, Zhang, Kamp and Dou, FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR
2021. The algorithm FedBN. With a network that has no BatchNorm it is FedAvg, to the bit.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.fedper import FedPer

DEVIATIONS = (
    Deviation("mean", "by examples; `weighted = false` gives the plain one", "as in fedavg"),
    Deviation(
        "evaluation",
        "with the weights that the client has just trained, not with the mean of all",
        "as in fedper, which it is compared with",
    ),
    Deviation(
        "server's network",
        "not evaluated",
        "its BatchNorm layers are those that it began with: there are no others that suit everyone",
    ),
)


@decides("part", "width", "alone", "norms")
def fedbn(**fedper: Any) -> FedPer:
    """FedAvg for networks with BatchNorm: these layers stay with each client, all others are averaged."""
    return FedPer(part="", norms="private", **fedper)
