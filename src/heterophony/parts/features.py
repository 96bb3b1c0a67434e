"""Features: what a network's `body` gives and its `head` reads. Losses ask for them by the parts that a `Fit` names."""

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
    """How many features a network has; raises for one without these two parts."""
    return head_of(network, asker).in_features


def head_of(network: nn.Module, asker: str) -> nn.Linear:
    """The head of a network of these two parts; raises for any other."""
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear) or not isinstance(getattr(network, "body", None), nn.Module):
        raise DataError(f"{asker} needs networks of two parts, `body` and a linear `head`, as in models/blocks.py")
    return head


def width_of(network: nn.Module, asker: str, width: int | None) -> int:
    """How many numbers a mean of its features has: `width` groups of them, or, for none, as many as there are."""
    own = features_of(network, asker)
    if width is not None and width > own:
        raise DataError(f"width = {width}, but this network has {own} features")
    return width or own


def pooled(features: Tensor, width: int) -> Tensor:
    """Features averaged in so many groups of neighbours. As a product, whose gradient repeats to the bit on a GPU."""
    count = features.shape[-1]
    if count == width:
        return features
    group = torch.arange(count, device=features.device) * width // count
    member = (group.unsqueeze(1) == torch.arange(width, device=features.device)).to(features)
    return features @ (member / member.sum(0))


def misfit(node: Node, what: str, given: tuple[int, ...], own: tuple[int | None, ...]) -> Note:
    """Note that what was heard does not go with a node's network; in words only once, which "warned" remembers."""
    if not node.vars.get("warned"):  # it is of networks that do not go together, or of somebody who wants us to stop
        log.warning(MISFIT, node.id, what, *given, *own)
    node.vars["warned"] = True
    return Note("misfit", 1.0)
