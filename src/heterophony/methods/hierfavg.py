"""HierFAVG: federated averaging over edge servers; every model is replaced on the way down.

Sent by a node: what is sent in B-HFL, without residual links: its weights, to its children and to its parent; to its
parent, how many examples its subtree holds.

Paper: Liu et al., Client-Edge-Cloud Hierarchical Federated Learning, ICC 2020. Algorithm 1; `turns` of inner nodes is
kappa_2 (edge aggregations in one of the cloud), means are weighted by examples. It is B-HFL with both rates one, so
that no model persists, and without residual links. Servers have no proxy data, unless `proxy.epochs` says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any

from heterophony import ByLevel, Deviation, decides
from heterophony.methods.bhfl import BHFL
from heterophony.parts import NodeOptimiser, Training

REPLACE = NodeOptimiser("sgd", rate=1.0)
NOTHING = Training(epochs=0)
EDGES = {"inner": 2, "*": 1}
PROXY = "of nodes with proxy data, which the paper does not have: none, unless `proxy.epochs` is set"
TURNS = "kappa_2: merges of an inner node before its parent hears of it"

DEVIATIONS = (
    Deviation("kappa_1", "counted in local epochs (`local.epochs`), not in steps", "as everywhere else here"),
    Deviation(
        "proxy data",
        "none, as in the paper; with `proxy.epochs` a node that has proxy data trains on them, as in B-HFL",
        "so that both methods can be compared on the same data",
    ),
    Deviation("levels", "any number of them", "it is B-HFL, whose trees have any depth; the paper has three levels"),
)

# What makes B-HFL this method.
DECIDED = (
    *(f"{way}.{part}" for way in ("up", "down", "far_up", "far_down") for part in vars(REPLACE)),
    *("live", "far", "per_link", "largest", "averaged", "merge", "pull", "overlap", "beside", "buffer", "leaf_steps"),
    *(f"staleness.{part}" for part in ("kind", "a", "b")),
)


@decides(*DECIDED)
def hierfavg(
    turns: Annotated[ByLevel[int], TURNS] = EDGES, proxy: Annotated[Training, PROXY] = NOTHING, **bhfl: Any
) -> BHFL:
    """FedAvg over edge servers and a cloud: the tree only saves communication."""
    return BHFL(turns=turns, up=REPLACE, down=REPLACE, far=False, proxy=proxy, **bhfl)
