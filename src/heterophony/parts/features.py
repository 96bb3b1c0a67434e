"""Features: what a network's `body` gives and its `head` reads.

Losses ask for them by the parts that a `Fit` names.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor, nn

from heterophony.data.errors import DataError
from heterophony.kernel.node import Node
from heterophony.kernel.work import Note

log = logging.getLogger(__name__)
MISFIT = (
    "node %s: %s of %s classes and %s features, but its own network has %s and %s: set width, or take networks whose "
    "last layers read equally many"
)


def features_of(network: nn.Module, asker: str) -> int:
    """Return how many features a network has; raise for one without a body and a linear head."""
    return head_of(network, asker).in_features


def head_of(network: nn.Module, asker: str) -> nn.Linear:
    """Return the head of a network of two parts, body and linear head; raise for any other.

    `asker` is who needs it, for the message.
    """
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear) or not isinstance(getattr(network, "body", None), nn.Module):
        raise DataError(f"{asker} needs networks of two parts, `body` and a linear `head`, as in models/blocks.py")
    return head


def width_of(network: nn.Module, asker: str, width: int | None) -> int:
    """Return how many numbers a mean of features has: `width`, or without one as many as the network has features."""
    own = features_of(network, asker)
    if width is not None and width > own:
        raise DataError(f"width = {width}, but this network has {own} features")
    return width or own


def pooled(features: Tensor, width: int) -> Tensor:
    """Return features averaged in `width` groups of neighbours.

    The average is a matrix product: its gradient repeats to the bit on a GPU.
    """
    count = features.shape[-1]
    if count == width:
        return features
    group = torch.arange(count, device=features.device) * width // count
    groups = torch.arange(width, device=features.device)
    member = (group.unsqueeze(1) == groups).to(features)
    return features @ (member / member.sum(0))


def misfit(node: Node, what: str, given: tuple[int, ...], own: tuple[int | None, ...]) -> Note:
    """Return the note that what was heard does not fit a node's network, and log it the first time.

    The variable "warned" remembers that it was logged.
    """
    # Logged, not raised: a sender who means harm could stop everybody otherwise.
    if not node.vars.get("warned"):
        log.warning(MISFIT, node.id, what, *given, *own)
    node.vars["warned"] = True
    return Note("misfit", 1.0)
