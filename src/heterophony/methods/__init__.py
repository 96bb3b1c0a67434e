"""One file a paper."""

from heterophony.methods.fccl import FCCL, fccl_code, fccl_homogeneous
from heterophony.methods.fedavg import FedAvg
from heterophony.methods.feddf import FedDF
from heterophony.methods.fedh2l import FedH2L, FedH2LAsync
from heterophony.methods.fedmd import FedMD, fedmd_global
from heterophony.methods.fedprox import fedprox
from heterophony.methods.fml import FML
from heterophony.methods.solo import Solo, agg

__all__ = [
    "FCCL",
    "FML",
    "FedAvg",
    "FedDF",
    "FedH2L",
    "FedH2LAsync",
    "FedMD",
    "Solo",
    "agg",
    "fccl_code",
    "fccl_homogeneous",
    "fedmd_global",
    "fedprox",
]
