"""Asynchronous B-HFL: no internal node waits for its children (FedAsync at every node; FedBuff with a larger buffer).

Leaves a node: what leaves it in B-HFL. Equations: those of B-HFL, Section 4, item 3; alpha is the rate of `up`.
Deviations: those of B-HFL. A node with as many places in its buffer as it has children waits for all of them.
Reference: Jacob, Bidirectional Hierarchical Federated Optimisation, 2023.
"""

from __future__ import annotations

from typing import Any

from heterophony import ByLevel
from heterophony.methods.bhfl import BHFL
from heterophony.parts import NodeOptimiser

MIX = NodeOptimiser("sgd", rate=0.6)


def bhfl_async(buffer: ByLevel[int] = 1, up: NodeOptimiser = MIX, **bhfl: Any) -> BHFL:
    """A tree in which nobody waits: every node merges what its children send when it comes."""
    return BHFL(buffer=buffer, up=up, **bhfl)
