"""DFedAvgM: D-PSGD whose peers train for epochs, with momentum, before they mix.

Sent by a peer: its weights after local training, and how many neighbours it has.

Paper: Sun, Li and Wang, Decentralized Federated Averaging, TPAMI 2022. Algorithm 1 (DFedAvgM): K steps of SGD with
heavy-ball momentum, begun anew in each round; then each takes the mean of its neighbours' weights by a mixing matrix.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.d_psgd import DPSGD
from heterophony.parts import Training

MOMENTUM = Training(momentum=0.9)

DEVIATIONS = (
    Deviation("mixing matrix", "Metropolis weights", "as in d-psgd"),
    Deviation("quantisation", "weights travel whole", "the paper's second algorithm sends rounded differences"),
    Deviation("momentum", "`local.momentum` is 0.9 unless set", "the paper has theta as an option"),
)


@decides("first")
def dfedavgm(local: Training = MOMENTUM, **dpsgd: Any) -> DPSGD:
    """Peers train for epochs with momentum, then mix their weights with their neighbours'; no server."""
    return DPSGD(local=local, **dpsgd)
