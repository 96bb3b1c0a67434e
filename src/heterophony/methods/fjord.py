"""FjORD: slices as in HeteroFL, whose clients also train narrower slices of their own by ordered dropout.

Sent by a client: the weights of its slice after local training, and from how many examples they are.
Sent by the server: to each client its slice of the weights.

Paper: Horvath, Laskaridis, Almeida, Leontiadis, Venieris and Lane, FjORD: Fair and Accurate Federated Learning under
heterogeneous targets with Ordered Dropout, NeurIPS 2021. Ordered dropout: in each local step a width p is drawn, evenly
among the `levels` up to the client's own, and the last units of each layer are dropped. Self-distillation: the drawn
slice learns from the outputs of the client's widest. An entry is averaged over those who have it.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import Deviation, decides
from heterophony.methods.heterofl import HeteroFL
from heterophony.parts import Distilled, Order

DEVIATIONS = (
    Deviation(
        "loss",
        "the widest slice learns from labels, and the drawn one from the widest (`distil` = 1), or partly from labels",
        "Eq. 3 of the paper has the shares alpha of a distance and 1 - alpha of the widest's cross-entropy. With the "
        "widest in the loss with its whole weight, `distil` = 0 is plain ordered dropout beside it.",
    ),
    Deviation(
        "BatchNorm",
        "one scale and shift for all widths; statistics as in `heterofl`",
        "the paper keeps a set for each width, which would travel too",
    ),
    Deviation(
        "layers",
        "a network with LayerNorm or GroupNorm is refused",
        "such a layer would see the dropped units as zeros, and be no slice",
    ),
)
WEIGHT = "share of the drawn slice's loss that is the distance from the widest; the rest is cross-entropy"

LEVELS = Order()


@decides("masking", "rolling")
def fjord(cut: Order = LEVELS, distil: Annotated[float, WEIGHT] = 1.0, **heterofl: Any) -> HeteroFL:
    """HeteroFL whose clients train narrower slices of their own too, by ordered dropout."""
    if not 0 <= distil <= 1:
        raise ValueError(f"distil is a share in [0, 1], got {distil}")
    return HeteroFL(cut=cut, masking=False, loss=Distilled(distil), **heterofl)
