"""One file a paper."""

from heterophony.methods.fedavg import FedAvg
from heterophony.methods.fedprox import fedprox

__all__ = ["FedAvg", "fedprox"]
