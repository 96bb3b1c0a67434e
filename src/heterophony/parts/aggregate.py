"""Means and differences of named tensors. Everything works on values and returns new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

Named = Mapping[str, Tensor]


def mean(items: Sequence[Named], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """The (weighted) mean of named tensors, summed in the order given. If no weight is above zero, all count alike."""
    if not items:
        raise ValueError("the mean of no messages: a skipped round brings no mail, so test `if mail` first")
    shares = [1.0] * len(items) if weights is None or not any(weights) else list(weights)
    if len(shares) != len(items) or min(shares) < 0 or not sum(shares) > 0:
        raise ValueError(f"{len(items)} items need as many weights >= 0, got {shares}")
    total = sum(shares)
    names = list(items[0])
    merged = torch._foreach_mul([items[0][name] for name in names], shares[0] / total)  # one launch for many tensors
    for item, share in zip(items[1:], shares[1:], strict=True):
        torch._foreach_add_(merged, [item[name] for name in names], alpha=share / total)
    return dict(zip(names, merged, strict=True))


def combine(items: Sequence[Tensor], how: Literal["mean", "median", "trimmed"] = "mean") -> Tensor:
    """One tensor from many of the same shape, element by element.

    The median, and the mean without the lowest and highest fifth (at least one of each where there are three or more),
    are not moved far by a few that are wrong.
    """
    if not items:
        raise ValueError("nothing to combine: a skipped round brings no mail, so test `if mail` first")
    stacked = torch.stack([item.float() for item in items])
    if how == "mean":
        return stacked.mean(0)
    if how == "median":
        return stacked.quantile(0.5, dim=0)  # of an even number, the mean of the two in the middle
    cut = max(1, len(items) // 5) if len(items) >= 3 else 0
    return stacked.sort(0).values[cut : len(items) - cut].mean(0)


def difference(a: Named, b: Named) -> dict[str, Tensor]:
    """a - b, name by name."""
    return {name: a[name] - b[name] for name in a}


def shifted(a: Named, b: Named, scale: float = 1.0) -> dict[str, Tensor]:
    """a + scale * b for the names of b; the other names of a as they are."""
    return {name: tensor.add(b[name], alpha=scale) if name in b else tensor for name, tensor in a.items()}


def dot(a: Named, b: Named) -> Tensor:
    """The inner product over all names of a."""
    return sum(((a[name] * b[name]).sum() for name in a), start=next(iter(a.values())).new_zeros(()))
