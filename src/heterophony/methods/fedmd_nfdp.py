"""FedMD-NFDP: FedMD whose clients draw a part of their private rows once, and train on nothing else.

Sent by a client: its logits on public rows, as in fedmd. No noise is added to them.
Sent by the server: a request to predict, then the average of the logits.

Paper: Sun and Lyu, Federated Model Distillation with Noise-Free Differential Privacy, IJCAI 2021. Of n rows k are drawn
without replacement. What comes of them is (ln((n + 1) / (n + 1 - k)), k / n)-differentially private; with replacement
it is (k ln((n + 1) / n), 1 - ((n - 1) / n)^k). Whatever is computed from these rows later costs nothing more.
"""

from __future__ import annotations

from typing import Any

from heterophony import Deviation, decides
from heterophony.methods.fedmd import FedMD
from heterophony.parts import SeenRows

SOME = SeenRows(count=100)

DEVIATIONS = (
    Deviation(
        "rows of training",
        "100 unless set (`seen.count`), for every client; a client with fewer trains on all of its rows",
        "who has fewer has no privacy by the draw, and the table notes none",
    ),
    Deviation("validation, choice of options", "are not counted in epsilon and delta", "as in the paper"),
    Deviation("the rest", "as in fedmd", "it is FedMD, on fewer rows"),
)


@decides("global_model")
def fedmd_nfdp(seen: SeenRows = SOME, **fedmd: Any) -> FedMD:
    """FedMD on a part of the private rows that each client draws once: differential privacy without noise."""
    return FedMD(seen=seen, **fedmd)
