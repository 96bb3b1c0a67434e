"""One file a paper."""

from heterophony.methods.fedavg import FedAvg
from heterophony.methods.fedprox import fedprox
from heterophony.methods.fml import FML
from heterophony.methods.solo import Solo, agg

__all__ = ["FML", "FedAvg", "Solo", "agg", "fedprox"]
