"""FFA-LoRA: one factor of each adapter is the same for all and frozen; only the other one is trained, and travels.

Sent by a client: the factors called `up` after local training, and from how many examples they are.
Sent by the server: to each client the first ranks of the server's `up`.

Paper: Sun, Li, Li and Ding, Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024. With `down` frozen, the
mean of products is the product of `down` and the mean of `up`, so that the mean is exact, noise is not multiplied with
noise (`local.private`), and half as much travels. Of different ranks, each rank is averaged over those who have it.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.hetlora import HetLoRA
from heterophony.parts import Adapt

DEVIATIONS = (Deviation("ranks", "may differ", "the paper has one rank for all"),)
FROZEN = Adapt(train=("up",))


@decides("rule", "by", "cut.train")
def ffa_lora(cut: Adapt = FROZEN, **hetlora: Any) -> HetLoRA:
    """Adapters of which one factor is frozen and the same for all, so that the mean of the other one is exact."""
    return HetLoRA(cut=cut, rule="coordinate", by="examples", **hetlora)
