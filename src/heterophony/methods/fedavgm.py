"""FedAvgM: FedAvg whose server moves with momentum.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: its weights.

Paper: Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019.
Section 4 (v <- beta v + dw, w <- w - v).
"""

from __future__ import annotations

from typing import Any

from heterophony import decides
from heterophony.methods.fedavg import FedAvg
from heterophony.parts import NodeOptimiser

MOMENTUM = NodeOptimiser("momentum", rate=1.0, beta1=0.9)


@decides("server.kind", "server.beta2", "server.tau")
def fedavgm(server: NodeOptimiser = MOMENTUM, **fedavg: Any) -> FedAvg:
    """FedAvg with momentum at the server.

    With `server.beta1 = 0` it is FedAvg, up to rounding.
    """
    return FedAvg(server=server, **fedavg)
