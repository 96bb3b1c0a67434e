"""FedAdagrad: FedAvg with Adagrad at the server.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: its weights.

Paper: Reddi et al., Adaptive Federated Optimization, ICLR 2021. Algorithm 2 (FEDADAGRAD): v begins at tau^2, and beta1
is 0, as in the paper's experiments.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.fedavg import FedAvg
from heterophony.parts import NodeOptimiser

ADAGRAD = NodeOptimiser("adagrad", rate=0.1, beta1=0.0, tau=1e-3)

DEVIATIONS = (Deviation("weights", "by examples; `weighted = false` gives the plain mean", "as in fedavg"),)


@decides("server.kind", "server.beta2")
def fedadagrad(server: NodeOptimiser = ADAGRAD, **fedavg: Any) -> FedAvg:
    """FedAvg with Adagrad at the server."""
    return FedAvg(server=server, **fedavg)
