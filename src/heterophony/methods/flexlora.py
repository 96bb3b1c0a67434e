"""FlexLoRA: the products of adapters are averaged, and each client gets the nearest factors of its own rank.

Sent by a client: the factors of its adapters after local training, and from how many examples they are.
Sent by the server: to each client factors of its rank, which come nearest to the mean change.

Paper: Bai, Chen, Qian, Yao and Li, Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and Client
Resources, NeurIPS 2024. The server computes each client's product of factors, averages these by examples, and
decomposes the mean by singular values. The mean of products is not the product of means.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.hetlora import HetLoRA

DEVIATIONS = (
    Deviation(
        "singular values",
        "their roots are in both factors",
        "The paper leaves it open. With all of them in one factor, both would be trained at unlike rates.",
    ),
    Deviation("virtual time", "the decomposition takes none", "virtual time is that of work on networks"),
)


@decides("rule", "by")
def flexlora(**hetlora: Any) -> HetLoRA:
    """Adapters of different ranks; what they come to is averaged, and brought to each rank by singular values."""
    return HetLoRA(rule="svd", by="examples", **hetlora)
