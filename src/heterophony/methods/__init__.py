"""Our methods, one file a paper. This table is the only place that lists them.

A method stands in it by its name: the file and, behind the colon, the class or function. Each can be imported from here
(`from heterophony.methods import FedAvg`); its file is read when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from heterophony.base.lazy import lazily

NAMES = {
    "solo": "solo:Solo",
    "agg": "solo:agg",
    "fedavg": "fedavg:FedAvg",
    "fedprox": "fedprox:fedprox",
    "fedmatch": "fedmatch:FedMatch",
    "data-sharing": "data_sharing:DataSharing",
    "fedcs": "fedcs:FedCS",
    "fedcurv": "fedcurv:FedCurv",
    "fednova": "fednova:FedNova",
    "scaffold": "scaffold:Scaffold",
    "moon": "moon:Moon",
    "feddyn": "feddyn:FedDyn",
    "afl": "afl:AFL",
    "q-ffl": "q_ffl:QFFL",
    "term": "term:TERM",
    "fedavgm": "fedavgm:fedavgm",
    "fedadam": "fedadam:fedadam",
    "fedyogi": "fedyogi:fedyogi",
    "fedadagrad": "fedadagrad:fedadagrad",
    "cyclic": "cyclic:Cyclic",
    "fedasync": "fedasync:FedAsync",
    "fedbuff": "fedbuff:FedBuff",
    "hierfavg": "hierfavg:hierfavg",
    "bhfl": "bhfl:BHFL",
    "bhfl-async": "bhfl_async:bhfl_async",
    "fml": "fml:FML",
    "fedkd": "fedkd:FedKD",
    "fedmrl": "fedmrl:FedMRL",
    "fedmd": "fedmd:FedMD",
    "fedmd-global": "fedmd:fedmd_global",
    "fedmd-nfdp": "fedmd_nfdp:fedmd_nfdp",
    "fccl": "fccl:FCCL",
    "fccl-homogeneous": "fccl:fccl_homogeneous",
    "fccl-code": "fccl_code:FCCLCode",
    "fccl-plus": "fccl_plus:FCCLPlus",
    "feddf": "feddf:FedDF",
    "fedbe": "fedbe:FedBE",
    "one-shot": "one_shot:OneShot",
    "fedkt": "fedkt:FedKT",
    "ds-fl": "ds_fl:DSFL",
    "cfd": "cfd:CFD",
    "kt-pfl": "kt_pfl:KTpFL",
    "cronus": "cronus:Cronus",
    "rcfl": "rcfl:RCFL",
    "rhfl": "rhfl:RHFL",
    "fd": "fd:FD",
    "fedproto": "fedproto:FedProto",
    "fedtgp": "fedtgp:fedtgp",
    "fedgh": "fedgh:FedGH",
    "fedre": "fedre:FedRE",
    "fedgkt": "fedgkt:FedGKT",
    "fedgen": "fedgen:fedgen",
    "fedh2l": "fedh2l:FedH2L",
    "fedh2l-async": "fedh2l:FedH2LAsync",
    "d-psgd": "d_psgd:DPSGD",
    "dfedavgm": "dfedavgm:dfedavgm",
    "gossip": "gossip:Gossip",
    "epidemic": "epidemic:Epidemic",
    "swarm": "swarm:Swarm",
    "ditto": "ditto:Ditto",
    "finetune": "finetune:FineTune",
    "reptile": "reptile:reptile",
    "per-fedavg": "per_fedavg:PerFedAvg",
    "apfl": "apfl:APFL",
    "mapper": "mapper:Mapper",
    "moe": "moe:MixtureOfExperts",
    "pfedme": "pfedme:PFedMe",
    "fedfomo": "fedfomo:FedFomo",
    "fedamp": "fedamp:FedAMP",
    "apple": "apple:APPLE",
    "fedala": "fedala:FedALA",
    "ifca": "ifca:IFCA",
    "cfl": "cfl:CFL",
    "fedsem": "fedsem:FedSEM",
    "fedper": "fedper:FedPer",
    "fedbn": "fedbn:fedbn",
    "lg-fedavg": "lg_fedavg:lg_fedavg",
    "fedrep": "fedrep:fedrep",
    "fedbabu": "fedbabu:FedBABU",
    "fedrod": "fedrod:FedRoD",
    "feddbe": "feddbe:FedDBE",
    "gpfl": "gpfl:GPFL",
    "fedas": "fedas:FedAS",
    "knn-per": "knn_per:KNNPer",
}
_PLACES = [place.split(":") for place in NAMES.values()]

__all__ = ["NAMES", *sorted(name for _, name in _PLACES)]

lazily(__name__, {name: file for file, name in _PLACES})

if TYPE_CHECKING:  # which file has a name is known at run time only

    def __getattr__(name: str) -> Any: ...
