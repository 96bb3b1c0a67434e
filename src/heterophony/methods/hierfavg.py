"""HierFAVG: federated averaging over edge servers; every model is replaced on the way down.

Leaves a node: what leaves it in B-HFL.
Equations: Algorithm 1; `turns` of inner nodes is kappa_2 (edge aggregations in one of the cloud), means are weighted by
examples. It is B-HFL with both rates one, so that no model persists, without residual links and proxy data.
Deviations: kappa_1 is counted in epochs (`local.epochs`), not in steps; any depth.
Reference: Liu et al., Client-Edge-Cloud Hierarchical Federated Learning, ICC 2020.
"""

from __future__ import annotations

from typing import Any

from heterophony import ByLevel
from heterophony.methods.bhfl import BHFL
from heterophony.parts import NodeOptimiser, Training

REPLACE = NodeOptimiser("sgd", rate=1.0)
NOTHING = Training(epochs=0)
EDGES = {"inner": 2, "*": 1}


def hierfavg(turns: ByLevel[int] = EDGES, **bhfl: Any) -> BHFL:
    """FedAvg over edge servers and a cloud: the tree only saves communication."""
    return BHFL(turns=turns, up=REPLACE, down=REPLACE, far=False, proxy=NOTHING, **bhfl)


hierfavg.fixed = (  # type: ignore[attr-defined]
    *(f"{way}.{part}" for way in ("up", "down", "far_up", "far_down") for part in vars(REPLACE)),
    *(f"proxy.{part}" for part in vars(NOTHING)),
    *("far", "per_link", "largest", "averaged", "merge", "pull", "overlap", "buffer"),
    *(f"staleness.{part}" for part in ("kind", "a", "b")),
)
