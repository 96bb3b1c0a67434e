"""Features: what a network's `body` gives and its `head` reads. Losses ask for them by the parts that a `Fit` names."""

from __future__ import annotations

from torch import nn

from heterophony.data.errors import DataError


def features_of(network: nn.Module, asker: str) -> int:
    """How many features a network has; raises for one without these two parts."""
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear) or not isinstance(getattr(network, "body", None), nn.Module):
        raise DataError(f"{asker} needs networks of two parts, `body` and a linear `head`, as in models/blocks.py")
    return head.in_features
