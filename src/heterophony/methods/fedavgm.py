"""FedAvgM: FedAvg whose server moves with momentum.

Leaves a client: what leaves it in FedAvg.
Equations: Section 4 (v <- beta v + dw, w <- w - v).
Deviations: none; `server.beta1 = 0` is FedAvg up to rounding.
Reference: Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
2019.
"""

from __future__ import annotations

from typing import Any

from heterophony.methods.fedavg import FedAvg
from heterophony.parts import NodeOptimiser

MOMENTUM = NodeOptimiser("momentum", rate=1.0, beta1=0.9)


def fedavgm(server: NodeOptimiser = MOMENTUM, **fedavg: Any) -> FedAvg:
    """FedAvg with momentum at the server."""
    return FedAvg(server=server, **fedavg)


fedavgm.fixed = ("server.kind", "server.beta2", "server.tau")  # type: ignore[attr-defined]
