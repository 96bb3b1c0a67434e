"""FedProx: FedAvg whose clients are pulled towards the global model.

Leaves a client: what leaves it in FedAvg.
Equations: Eq. 2. Deviations: none; `mu=0` is FedAvg to the bit.
Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
"""

from __future__ import annotations

from typing import Any

from heterophony.methods.fedavg import FedAvg
from heterophony.parts import Proximal


def fedprox(mu: float = 0.01, **fedavg: Any) -> FedAvg:
    """FedAvg plus one gradient transform."""
    return FedAvg(transform=Proximal(mu), **fedavg)
