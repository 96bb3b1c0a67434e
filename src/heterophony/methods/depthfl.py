"""DepthFL: each client has the first blocks of the server's network, with an exit behind each; exits teach each other.

Sent by a client: the weights of its blocks and exits after local training.
Sent by the server: to each client its blocks and exits.

Paper: Kim, Yu, Kim and Moon, DepthFL: Depthwise Federated Learning for Heterogeneous Clients, ICLR 2023. The loss is
the sum over exits of the cross-entropy and of the mean KL divergence from each other exit (self-distillation). A tensor
is averaged over those who have it. In evaluation the outputs of all exits are averaged.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import Deviation, decides
from heterophony.methods.heterofl import HeteroFL
from heterophony.parts import MutualExits, Shallow

DEVIATIONS = (
    Deviation(
        "exits",
        "a linear layer on the mean over all places; the last one is the network's own head",
        "the authors put convolutions before them; ours can be put behind any block",
    ),
    Deviation("blocks", "about as many layers with weights in each", "the paper's are the four groups of a ResNet"),
    Deviation(
        "distillation",
        "with the weight `distil` from the first round on",
        "the authors' code lets it grow over the first 300 rounds",
    ),
    Deviation("FedDyn", "not built in", "the authors' code can have it beside; the paper's method does without"),
)

BLOCKS = Shallow()


@decides("masking", "rolling")
def depthfl(
    cut: Shallow = BLOCKS,
    distil: Annotated[float, "weight of the distances between exits"] = 1.0,
    static: Annotated[bool, "BatchNorm's statistics do not travel with weights"] = False,
    **heterofl: Any,
) -> HeteroFL:
    """Each client has the first blocks of the network, and an exit behind each; exits teach each other."""
    if not distil >= 0:
        raise ValueError(f"distil is a weight >= 0, got {distil}")
    return HeteroFL(cut=cut, masking=False, static=static, loss=MutualExits(distil), **heterofl)
