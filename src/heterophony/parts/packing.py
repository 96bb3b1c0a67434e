"""Packing (PackNet): after so many trainings the largest weights are fixed for good, and the others begin anew at zero.

A tensor's free weights compete among themselves by their absolute values. Tensors of one dimension (biases,
BatchNorm's) are fixed whole with the first task, as in the paper. What is fixed is put back before each training, so
that no mean with others moves it. Which task a row is of need not be known: all weights predict. So an older task is
remembered as far as later weights leave its outputs alone; with `tasks_network` its own network is there to the bit.

Reference: Mallya and Lazebnik, PackNet: Adding Multiple Tasks to a Single Network by Iterative Pruning, CVPR 2018.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heterophony.kernel.node import Node
from heterophony.kernel.work import Named


@dataclass(frozen=True)
class Packing:
    """A gradient transform: only what is free has a gradient."""

    def __call__(self, gradients: Named, parameters: Named, *, free: Named) -> dict[str, Tensor]:
        return {name: gradient * free[name] for name, gradient in gradients.items()}


def begin_training(node: Node, packed: dict[str, Any], share: float, task: int) -> tuple[dict[str, Any], Named]:
    """Put back what is fixed, and return what is known now, with a one for each weight that this training may move.

    The last training of a task begins with the choice of what is fixed. All other free weights become zero.
    """
    weights = _weights(node)
    owners = packed.get("owners") or {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    trainings, number = packed.get("trainings", 0) + 1, packed.get("tasks", 0) + 1
    _hold(node, {name: (owner == 0) for name, owner in owners.items()}, packed.get("values", weights))
    if trainings % task:
        free = {name: (owner == 0).to(owner) for name, owner in owners.items()}
        return {**packed, "owners": owners, "trainings": trainings, "values": _weights(node)}, free
    owners = {name: _taken(tensor, owners[name], share, number) for name, tensor in _weights(node).items()}
    zeros = {name: torch.zeros_like(owner) for name, owner in owners.items()}
    _hold(node, {name: owner > 0 for name, owner in owners.items()}, zeros)
    free = {name: (owner == number).to(owner) for name, owner in owners.items()}
    known = {"owners": owners, "trainings": trainings, "tasks": number, "values": _weights(node)}
    return {**packed, **known}, free


def end_training(node: Node, packed: dict[str, Any], free: Named) -> dict[str, Any]:
    """Undo what momentum or decay did to weights that were not free, and return what is known now."""
    _hold(node, {name: tensor > 0 for name, tensor in free.items()}, packed["values"])
    return {**packed, "values": _weights(node)}


def tasks_network(packed: dict[str, Any], number: int) -> dict[str, Tensor]:
    """Return the weights of a task's own network (the first is 1): those that were fixed until its end, and zeros."""
    values, owners = packed["values"], packed["owners"]
    return {name: values[name] * ((owners[name] > 0) & (owners[name] <= number)) for name in values}


def _weights(node: Node) -> dict[str, Tensor]:
    """Return what is trained; frozen parts are nobody's."""
    named = node.models["model"].named_parameters()
    return {name: parameter.detach().clone() for name, parameter in named if parameter.requires_grad}


@torch.no_grad()
def _hold(node: Node, may_differ: Named, values: Named) -> None:
    """Give all weights but those that may differ these values."""
    for name, parameter in node.models["model"].named_parameters():
        if name in may_differ:
            parameter.copy_(torch.where(may_differ[name].to(parameter.device), parameter, values[name].to(parameter)))


def _taken(weights: Tensor, owner: Tensor, share: float, number: int) -> Tensor:
    """Return whose each weight is, when a task takes this share of the free ones: the largest, at least one."""
    at = (owner.flatten() == 0).nonzero().flatten()
    count = len(at) if weights.dim() < 2 else min(len(at), max(1, round(share * len(at))))
    found = owner.flatten().clone()
    found[at[weights.flatten()[at].abs().topk(count).indices]] = number
    return found.view_as(owner)
