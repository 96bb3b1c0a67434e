"""Local training that does not forget: a client learns beside two older copies of its own network (FCCL, Eq. 3-7).

The copy "pretrained" is the network before the first round. The copy "previous" is the network after the last local
update. A method that uses this part has both in its `models`, and "pretrained" in its `memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data
from heterophony.kernel.node import Node
from heterophony.kernel.work import Mark, Steps
from heterophony.parts.losses import Nets, cross_entropy, kl
from heterophony.parts.training import Training


@dataclass(frozen=True)
class LocalLoss:
    """FCCL's Eq. 7: cross-entropy, KL from the previous network (inter), and KL from the pretrained one (intra)."""

    lambda_loc: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        logits = nets["model"](batch.x)
        inter = kl(nets["previous"](batch.x), logits)
        intra = kl(nets["pretrained"](batch.x), logits)
        cross = F.cross_entropy(logits, batch.y)
        return {"model": {"ce": cross, "inter": self.lambda_loc * inter, "intra": self.lambda_loc * intra}}


def begin(client: Node, pretrain: Training) -> Steps:
    """Pretrain a client before its first round; both older networks are then what it has come to."""
    if "pretrained" in client.vars:
        return
    client.vars["pretrained"] = True
    if pretrain.at(client).epochs:
        yield pretrain.fit("model", cross_entropy, once=True)
    yield Mark("initial", once=True)
    for older in ("pretrained", "previous"):
        client.copy("model", older)


def due(node: Node, every: int) -> bool:
    """Return whether this round has local updates: one in every so many rounds."""
    return (node.round + 1) % every == 0


def update(client: Node, local: Training, lambda_loc: float) -> Steps:
    """Train on private rows; the network that comes of it is the previous one of the next update."""
    yield local.fit("model", LocalLoss(lambda_loc), teachers=("previous", "pretrained"))
    client.copy("model", "previous")
