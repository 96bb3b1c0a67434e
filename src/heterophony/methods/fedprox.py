"""FedProx: FedAvg whose clients are pulled towards the global model.

Sent by a client: its weights after local training, and how many examples they come from.
Sent by the server: its weights.

Paper: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020. Eq. 2 (the proximal term). There
are no deviations but FedAvg's. With `mu = 0` it is FedAvg to the bit.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony.methods.fedavg import FedAvg
from heterophony.parts import Proximal

PULL = "how strongly local training is pulled to the global model; 0 is fedavg"


def fedprox(mu: Annotated[float, PULL] = 0.01, **fedavg: Any) -> FedAvg:
    """FedAvg whose clients are pulled towards the global model while they train."""
    return FedAvg(transform=Proximal(mu), **fedavg)
