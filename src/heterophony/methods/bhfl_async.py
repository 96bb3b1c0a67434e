"""Asynchronous B-HFL: no internal node waits for its children (FedAsync at every node; FedBuff with a larger buffer).

Sent by a node: what is sent in B-HFL.

Paper: Jacob, Bidirectional Hierarchical Federated Optimisation, 2023. The equations of B-HFL, and
Section 4, item 3. Its alpha is the rate of `up`.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import ByLevel, Deviation
from heterophony.methods.bhfl import BHFL
from heterophony.parts import NodeOptimiser

MIX = NodeOptimiser("sgd", rate=0.6)
BUFFER = "K: a node merges every K answers, whoever sent them; 0 waits for the cohort"

DEVIATIONS = (
    Deviation("all of B-HFL's", "as in `bhfl`", "it is the same method with other options"),
    Deviation(
        "buffer",
        "a node with as many places in its buffer as it has children waits for all of them",
        "each child is at work once at a time",
    ),
)


def bhfl_async(buffer: Annotated[ByLevel[int], BUFFER] = 1, up: NodeOptimiser = MIX, **bhfl: Any) -> BHFL:
    """A tree in which nobody waits: every node merges what its children send when it comes."""
    return BHFL(buffer=buffer, up=up, **bhfl)
