"""Which architecture weights belong to, where a server has a model of each."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from heterophony.kernel.message import Message
from heterophony.kernel.node import Node
from heterophony.kernel.work import Named


def by_architecture(server: Node, mail: Iterable[Message]) -> dict[str, list[Message]]:
    """Return the updates of each architecture by the server's model of it; those that fit no model are left out."""
    groups: dict[str, list[Message]] = {}
    for m in mail:
        slot = _model_of(server, m.weights)
        if slot is not None:
            groups.setdefault(slot, []).append(m)
    return groups


def _model_of(server: Node, weights: Named) -> str | None:
    """Return the server's model of the architecture that these weights belong to, if there is one."""
    shapes = _shapes(weights)
    for slot in server.slots:
        if _shapes(server.slots[slot].shared()) == shapes:
            return slot
    return None


def _shapes(weights: Named) -> dict[str, torch.Size]:
    """Return the shape of each tensor by its name."""
    return {name: tensor.shape for name, tensor in weights.items()}
