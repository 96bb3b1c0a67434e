"""RBLA: HetLoRA whose factors are averaged rank by rank, over those who have the rank.

Sent by a client: the factors of its adapters after local training, and from how many examples they are.
Sent by the server: to each client the first ranks of the server's factors.

Paper: Chen, Tavallaie, Nazemi and Zomaya, RBLA: Rank-Based-LoRA-Aggregation for Fine-tuning Heterogeneous Models in
FLaaS, 2024. Padding with zeros shrinks the ranks that few clients have. Here a row of `down`, and a column of `up`, is
the mean by examples over the clients that have it. With equal ranks it is FedAvg of the adapters, to the bit.
"""

from __future__ import annotations

from typing import Any

from heterophony import decides
from heterophony.methods.hetlora import HetLoRA

DEVIATIONS = ()


@decides("rule", "by")
def rbla(**hetlora: Any) -> HetLoRA:
    """Adapters of different ranks; each rank is averaged over the clients that have it."""
    return HetLoRA(rule="coordinate", by="examples", **hetlora)
