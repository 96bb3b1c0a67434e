"""FedRolex: HeteroFL whose slices roll, so that each entry of the server's network is trained by everyone in turn.

Sent by a client: as in HeteroFL, the weights of its slice.
Sent by the server: to each client its slice of this round.

Paper: Alam, Liu, Yan and Zhang, FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction,
NeurIPS 2022. Eq. 1: in round t a slice has the units from t on, round about. The mean is HeteroFL's. A client never
learns where its slice lies. With everyone at width 1 it is `heterofl`, to the bit.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.heterofl import HeteroFL
from heterophony.parts import Narrow

DEVIATIONS = (
    Deviation(
        "scaler",
        "off by default (`cut.scaler`)",
        "The authors' code has it, as HeteroFL's has. In our trial on digits rolling slices did not learn with it.",
    ),
)

PLAIN = Narrow()


@decides("rolling")
def fedrolex(cut: Narrow = PLAIN, **heterofl: Any) -> HeteroFL:
    """HeteroFL whose slices begin one unit further on in each round, round about."""
    return HeteroFL(cut=cut, rolling=True, **heterofl)
