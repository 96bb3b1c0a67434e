"""FedAdam: FedAvg with Adam at the server.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: its weights.

Paper: Reddi et al., Adaptive Federated Optimization, ICLR 2021. Algorithm 2 (FEDADAM): there is no bias
correction, and v begins at tau^2.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.fedavg import FedAvg
from heterophony.parts import NodeOptimiser

ADAM = NodeOptimiser("adam", rate=0.01, beta1=0.9, beta2=0.99, tau=1e-3)

DEVIATIONS = (Deviation("weights", "by examples; `weighted = false` gives the plain mean", "as in fedavg"),)


@decides("server.kind")
def fedadam(server: NodeOptimiser = ADAM, **fedavg: Any) -> FedAvg:
    """FedAvg with Adam at the server."""
    return FedAvg(server=server, **fedavg)
