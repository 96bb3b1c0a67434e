"""FedAdam: FedAvg with Adam at the server.

Leaves a client: what leaves it in FedAvg.
Equations: Algorithm 2 (FEDADAM), without bias correction, v from tau^2.
Deviations: float buffers take the mean, not the moments; weighted by examples unless `weighted = false`.
Reference: Reddi et al., Adaptive Federated Optimization, ICLR 2021.
"""

from __future__ import annotations

from typing import Any

from heterophony.methods.fedavg import FedAvg
from heterophony.parts import NodeOptimiser

ADAM = NodeOptimiser("adam", rate=0.01, beta1=0.9, beta2=0.99, tau=1e-3)


def fedadam(server: NodeOptimiser = ADAM, **fedavg: Any) -> FedAvg:
    """FedAvg with Adam at the server."""
    return FedAvg(server=server, **fedavg)


fedadam.fixed = ("server.kind",)  # type: ignore[attr-defined]
