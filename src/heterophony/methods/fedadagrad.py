"""FedAdagrad: FedAvg with Adagrad at the server.

Leaves a client: what leaves it in FedAvg.
Equations: Algorithm 2 (FEDADAGRAD), v from tau^2; beta1 = 0 as in the paper's experiments.
Deviations: float buffers take the mean, not the moments; weighted by examples unless `weighted = false`.
Reference: Reddi et al., Adaptive Federated Optimization, ICLR 2021.
"""

from __future__ import annotations

from typing import Any

from heterophony.methods.fedavg import FedAvg
from heterophony.parts import NodeOptimiser

ADAGRAD = NodeOptimiser("adagrad", rate=0.1, beta1=0.0, tau=1e-3)


def fedadagrad(server: NodeOptimiser = ADAGRAD, **fedavg: Any) -> FedAvg:
    """FedAvg with Adagrad at the server."""
    return FedAvg(server=server, **fedavg)


fedadagrad.fixed = ("server.kind", "server.beta2")  # type: ignore[attr-defined]
