"""SOLO and AGG: everyone trains alone (SOLO, also called IND), or alone with the public data of all (AGG).

Sent by a node: nothing.

Paper: the baselines of Li et al. (FedH2L, 2021) and Huang et al. (FCCL, CVPR 2022).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heterophony import Deviation, Loss, Mark, Method, Node, Own, Round, Steps, decides, on
from heterophony.parts import Retention, Training, task_loss

EVERYTHING = Training(data="all")

DEVIATIONS = (
    Deviation(
        "data of AGG",
        "each node's own private data and all labelled public data; nothing is sent",
        "FedH2L's definition; it does not mean pooled private data",
    ),
)


class Solo(Method):
    """Each participant trains its own network on its own data; nothing is sent."""

    roles = ("peer",)
    memory = ("retained",)
    models = {"peer": {"model": Own()}}
    headline = "local"
    tasks = True

    local: Training = Training()
    loss: Loss = task_loss
    retain: Retention = Retention()  # against forgetting, where data come as a stream

    @on(Round)
    def train(self, peer: Node) -> Steps:
        yield from self.local.before_first_round(peer, self.loss)
        yield from self.retain.train(peer, self.local, "model", self.loss, keep="own")
        yield Mark("local")
        peer.round += 1


@decides("local.data")
def agg(local: Training = EVERYTHING, **solo: Any) -> Solo:
    """Each participant trains its own network on its own data and all labelled public data; nothing is sent."""
    return Solo(local=replace(local, data="all"), **solo)
