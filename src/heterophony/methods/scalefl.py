"""ScaleFL: a client's slice of the server's network is narrower and has fewer blocks; early exits learn from the last.

Sent by a client: the weights of its slice after local training.
Sent by the server: to each client its slice of the weights.

Paper: Ilhan, Su and Liu, ScaleFL: Resource-Adaptive Federated Learning with Heterogeneous Clients, CVPR 2023. A slice
has the first blocks with the first units of each layer, and an exit behind each block. Earlier exits learn from the
labels and from the client's last exit. An entry is averaged over those who have it.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import Deviation, decides
from heterophony.methods.heterofl import HeteroFL
from heterophony.parts import Compound, FromTheLast

DEVIATIONS = (
    Deviation(
        "widths and depths",
        "are those that `models.width` and `models.depth` say, each by itself",
        "the paper searches a pair for each class of devices by what it costs",
    ),
    Deviation(
        "exits",
        "a linear layer on the mean over all places; the last one is the network's own head",
        "the paper's are made by hand for each network",
    ),
    Deviation(
        "loss",
        "Exit j of m counts as j / (1 + ... + m). The share and the temperature of the distance are options, and the "
        "same in all rounds.",
        "the values are ours; they are not taken from the paper",
    ),
)

BLOCKS = Compound()


@decides("masking", "rolling")
def scalefl(
    cut: Compound = BLOCKS,
    distil: Annotated[float, "share of an earlier exit's loss that is its distance from the last"] = 0.1,
    temperature: Annotated[float, "by which outputs are softened for that distance"] = 3.0,
    **heterofl: Any,
) -> HeteroFL:
    """Slices that are narrower and have fewer blocks, with early exits that learn from the last."""
    if not 0 <= distil <= 1 or not temperature > 0:
        raise ValueError(f"distil is a share in [0, 1] and temperature is > 0, got {distil} and {temperature}")
    return HeteroFL(cut=cut, masking=False, loss=FromTheLast(distil, temperature), **heterofl)
