"""One file a paper."""

from heterophony.methods.bhfl import BHFL
from heterophony.methods.bhfl_async import bhfl_async
from heterophony.methods.fccl import FCCL
from heterophony.methods.fedadagrad import fedadagrad
from heterophony.methods.fedadam import fedadam
from heterophony.methods.fedasync import FedAsync
from heterophony.methods.fedavg import FedAvg
from heterophony.methods.fedavgm import fedavgm
from heterophony.methods.fedbuff import FedBuff
from heterophony.methods.feddf import FedDF
from heterophony.methods.fedmd import FedMD, fedmd_global
from heterophony.methods.fedprox import fedprox
from heterophony.methods.fedyogi import fedyogi
from heterophony.methods.fml import FML
from heterophony.methods.hierfavg import hierfavg
from heterophony.methods.solo import Solo, agg

__all__ = [
    "BHFL",
    "FCCL",
    "FML",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedDF",
    "FedMD",
    "Solo",
    "agg",
    "bhfl_async",
    "fedadagrad",
    "fedadam",
    "fedavgm",
    "fedmd_global",
    "fedprox",
    "fedyogi",
    "hierfavg",
]
