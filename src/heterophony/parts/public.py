"""Public rows that everyone can name: which, and in which order, follows from the seed, so that only logits travel."""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony.node import Node
from heterophony.seeds import generator


def public_rows(node: Node, count: int | None, fresh: bool = True, view: str = "public") -> Tensor:
    """`count` rows of the public view (None: all), drawn anew each round or once; the same on every node."""
    total = len(node.data[view])
    if count is None or count >= total:
        return torch.arange(total)
    when = node.round if fresh else "once"
    return torch.randperm(total, generator=generator(node.seed, "public rows", when))[:count].sort().values
