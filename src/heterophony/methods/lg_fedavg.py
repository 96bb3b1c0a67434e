"""LG-FedAvg: every client has a body of its own (local representations), the heads on top of them are averaged.

Leaves a client: the weights of its network's head after local training, and from how many examples they are.
Equations: Algorithm 1 (LG-FedAvg) without the optional losses for representations (fair or self-supervised ones).
Deviations: those of FedPer, whose mirror image it is. All clients start from one network, as in the authors' code, but
from a new one, where that code begins with one that FedAvg has trained. Bodies may differ: then those of one
architecture start alike, and all with one head. With `width`, features are in so many groups of neighbours, and a head
for as many is written out for each network's own features; the paper's networks have one width. The ensemble of all
local models, which the paper takes for rows of nobody, is not formed.
Reference: Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global Representations, 2020.
"""

from __future__ import annotations

from typing import Any

from heterophony.methods.fedper import FedPer


def lg_fedavg(**fedper: Any) -> FedPer:
    """FedPer the other way round: the body stays with its client, the head is averaged."""
    return FedPer(part="head", **fedper)


lg_fedavg.fixed = ("part",)  # type: ignore[attr-defined]
