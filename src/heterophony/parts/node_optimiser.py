"""NODEOPT: how a node moves from its model towards those it got (FedOPT; B-HFL, Eq. 3).

Everything here works on values. The state belongs to the caller, who keeps one for each direction and link.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from heterophony.kernel.by_level import ByLevel, pick, values
from heterophony.kernel.node import Node
from heterophony.kernel.work import Named
from heterophony.parts import schedules
from heterophony.parts.own_value import names_of
from heterophony.parts.schedules import Scheduled

Rule = Literal["sgd", "momentum", "nesterov", "adam", "yogi", "adagrad"]
PLAIN = ("sgd", "momentum", "nesterov")  # rules whose rate is a share of a step
State = dict[str, dict[str, Tensor]]
BETA1 = "of momentum, Nesterov, Adam, Yogi, Adagrad: how slowly the mean of the steps changes"
RATE = "step of the node's optimiser: 1 takes what comes, less keeps some of its own"


@dataclass(frozen=True)
class NodeOptimiser:
    """The rule of FedAvg, FedAvgM, FedAdam, FedYogi or FedAdagrad. Every option may differ from node to node.

    D is the pseudo-gradient: the mean model received, less the node's own.
    `sgd` moves by rate D. `momentum` moves by rate m, with m = beta1 m + D (Hsu et al. 2019).
    `nesterov` moves by rate (D + beta1 m), with the same m.
    The others move by rate m / (sqrt(v) + tau), with m = beta1 m + (1 - beta1) D (Reddi et al. 2021, Algorithm 2).
    There, v is beta2 v + (1 - beta2) D^2 (adam), v - (1 - beta2) D^2 sign(v - D^2) (yogi) or v + D^2 (adagrad). It
    starts at tau^2. There is no bias correction.
    """

    kind: Annotated[ByLevel[Rule], "rule of the node's optimiser"] = "sgd"
    rate: Annotated[ByLevel[Scheduled], RATE] = 1.0
    beta1: Annotated[ByLevel[float], BETA1] = 0.9
    beta2: Annotated[ByLevel[float], "of Adam, Yogi: how slowly the mean of their squares changes"] = 0.99
    tau: Annotated[ByLevel[float], "of Adam, Yogi, Adagrad: keeps the step finite"] = 1e-3

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", schedules.read_by_node(self.rate))
        given: list[Any] = values(self.rate)
        rates = [end for rate in given for end in schedules.ends(rate)]
        if not all(0 <= rate < math.inf for rate in rates) or not all(tau > 0 for tau in values(self.tau)):
            raise ValueError(f"a node optimiser needs rate >= 0 and tau > 0, got {self.rate} and {self.tau}")
        if not all(0 <= beta < 1 for beta in (*values(self.beta1), *values(self.beta2))):
            raise ValueError(f"a node optimiser needs betas in [0, 1), got {self.beta1} and {self.beta2}")

    def at(self, *names: str, round: int = 0) -> NodeOptimiser:
        """Return the optimiser of the node with these names, in a round of its own."""
        own: dict[str, Any] = {field.name: pick(getattr(self, field.name), *names) for field in fields(self)}
        return replace(self, **{**own, "rate": schedules.at(own["rate"], round)})

    def step(
        self, weights: Named, target: Named, state: Mapping[str, Named], moving: Collection[str]
    ) -> tuple[dict[str, Tensor], State]:
        """Take one step towards the target; return new weights and new state.

        `moving` names the parameters. All else is statistics (of BatchNorm), for which moments mean nothing. The plain
        rules mix them by the rate, at most by one; the adaptive rules take those of the target.
        """
        kind, rate, beta1, _, tau = self._numbers()
        if kind == "sgd" and rate == 1:
            return dict(target), {}  # w + (target - w) would cost the last bit
        share = min(rate, 1.0) if kind in PLAIN else 1.0
        moved: dict[str, Tensor] = {}
        kept: State = {}
        for name, w in weights.items():
            delta = target[name] - w
            if name not in moving:
                moved[name] = w.add(delta, alpha=share)
                continue
            if kind == "sgd":
                moved[name] = w.add(delta, alpha=rate)
                continue
            m = state["m"][name] if state else torch.zeros_like(w)
            m = beta1 * m + (delta if kind in PLAIN else (1 - beta1) * delta)
            kept.setdefault("m", {})[name] = m
            if kind in PLAIN:
                moved[name] = w.add(m if kind == "momentum" else delta + beta1 * m, alpha=rate)
                continue
            v = self._squared(state["v"][name] if state else torch.full_like(w, tau**2), delta * delta)
            kept.setdefault("v", {})[name] = v
            moved[name] = w + rate * m / (v.sqrt() + tau)
        return moved, kept

    def _squared(self, v: Tensor, square: Tensor) -> Tensor:
        """Return v, the mean of the squares, after one more of them."""
        kind, _, _, share, _ = self._numbers()
        beta2: float = share
        if kind == "adam":
            return beta2 * v + (1 - beta2) * square
        if kind == "yogi":
            return v - (1 - beta2) * square * (v - square).sign()
        return v + square

    def _numbers(self) -> tuple[Any, Any, Any, Any, Any]:
        """Return its options, which are plain ones of one node."""
        return self.kind, self.rate, self.beta1, self.beta2, self.tau


def moving(node: Node, model: str = "model") -> frozenset[str]:
    """Return the names of a model's parameters: what an optimiser moves."""
    return frozenset(name for name, _ in node.slots[model].module.named_parameters())


def update_of(node: Node, after: Named, before: Named) -> dict[str, Tensor]:
    """Return by how much the parameters differ, in the order of the weights: sums over a set would have none."""
    steps = moving(node)
    return {name: tensor - before[name] for name, tensor in after.items() if name in steps}


def move(node: Node, target: Named, optimiser: NodeOptimiser, state: str = "up") -> None:
    """Move a node's model towards the target, with the state of that name in its variable "states"."""
    states = node.vars.setdefault("states", {})
    own = {name: tensor.detach() for name, tensor in node.slots["model"].shared().items()}  # read only: no copy
    weights, kept = optimiser.at(*names_of(node), round=node.round).step(
        own, target, states.get(state, {}), moving(node)
    )
    if kept:
        states[state] = kept
    node.load(weights)
