"""One file a paper."""

from heterophony.methods.afl import AFL
from heterophony.methods.bhfl import BHFL
from heterophony.methods.bhfl_async import bhfl_async
from heterophony.methods.cfl import CFL
from heterophony.methods.cronus import Cronus
from heterophony.methods.ditto import Ditto
from heterophony.methods.ds_fl import DSFL
from heterophony.methods.fccl import FCCL, fccl_code, fccl_homogeneous
from heterophony.methods.fd import FD
from heterophony.methods.fedadagrad import fedadagrad
from heterophony.methods.fedadam import fedadam
from heterophony.methods.fedasync import FedAsync
from heterophony.methods.fedavg import FedAvg
from heterophony.methods.fedavgm import fedavgm
from heterophony.methods.fedbuff import FedBuff
from heterophony.methods.feddf import FedDF
from heterophony.methods.fedgen import FedGen
from heterophony.methods.fedgh import FedGH
from heterophony.methods.fedh2l import FedH2L, FedH2LAsync
from heterophony.methods.fedkd import FedKD
from heterophony.methods.fedmatch import FedMatch
from heterophony.methods.fedmd import FedMD, fedmd_global
from heterophony.methods.fedmrl import FedMRL
from heterophony.methods.fedper import FedPer
from heterophony.methods.fedproto import FedProto
from heterophony.methods.fedprox import fedprox
from heterophony.methods.fedrep import fedrep
from heterophony.methods.fedtgp import fedtgp
from heterophony.methods.fedyogi import fedyogi
from heterophony.methods.finetune import FineTune
from heterophony.methods.fml import FML
from heterophony.methods.hierfavg import hierfavg
from heterophony.methods.ifca import IFCA
from heterophony.methods.kt_pfl import KTpFL
from heterophony.methods.lg_fedavg import lg_fedavg
from heterophony.methods.moon import Moon
from heterophony.methods.rcfl import RCFL
from heterophony.methods.scaffold import Scaffold
from heterophony.methods.solo import Solo, agg

__all__ = [
    "AFL",
    "BHFL",
    "Cronus",
    "DSFL",
    "CFL",
    "Ditto",
    "FCCL",
    "FD",
    "FML",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedDF",
    "FedGH",
    "FedGen",
    "FedH2L",
    "FedH2LAsync",
    "FedKD",
    "FedMD",
    "FedMRL",
    "FedMatch",
    "FedPer",
    "FedProto",
    "FineTune",
    "IFCA",
    "KTpFL",
    "Moon",
    "RCFL",
    "Scaffold",
    "Solo",
    "agg",
    "bhfl_async",
    "fccl_code",
    "fccl_homogeneous",
    "fedadagrad",
    "fedadam",
    "fedavgm",
    "fedmd_global",
    "fedprox",
    "fedtgp",
    "fedrep",
    "fedyogi",
    "hierfavg",
    "lg_fedavg",
]
