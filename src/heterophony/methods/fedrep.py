"""FedRep: every client fits a head of its own to the common body, then the body to its head; the bodies are averaged.

Leaves a client: the weights of its network's `part` (the body, unless set) after local training, and from how many
examples they are. Its head never leaves it.
Equations: Algorithm 1 (FedRep). In each round the head is trained for `alone` epochs with the body as the server sent
it, then the body for `local.epochs` (or `local.steps`) with that head.
Deviations: those of FedPer, whose machinery it uses. The mean is by examples (`weighted=False`: the paper's plain one).
Head and body have an optimiser each, fresh in every round. A network is in training mode all the time, so that
BatchNorm's statistics in the body follow the rows while only the head learns. A client is evaluated with the body that
it has just trained, not with the mean of all. With `alone=0` and the whole as `part` it is FedAvg, to the bit.
Reference: Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021.
"""

from __future__ import annotations

from typing import Any

from heterophony.methods.fedper import FedPer


def fedrep(alone: int = 10, **fedper: Any) -> FedPer:
    """FedPer in turns: first the head alone, for some epochs, then the body alone, which is averaged."""
    return FedPer(alone=alone, **fedper)
