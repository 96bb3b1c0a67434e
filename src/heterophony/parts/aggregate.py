"""Means and differences of named tensors. Everything works on values and returns new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

Named = Mapping[str, Tensor]


def mean(items: Sequence[Named], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """The (weighted) mean of named tensors, summed in the order given."""
    if not items:
        raise ValueError("the mean of no messages: a skipped round brings no mail, so test `if mail` first")
    shares = [1.0] * len(items) if weights is None else list(weights)
    if len(shares) != len(items) or min(shares) < 0 or not sum(shares) > 0:
        raise ValueError(f"{len(items)} items need as many weights >= 0 that are not all zero, got {shares}")
    total = sum(shares)
    merged = {name: tensor * (shares[0] / total) for name, tensor in items[0].items()}
    for item, share in zip(items[1:], shares[1:], strict=True):
        for name, tensor in merged.items():
            tensor.add_(item[name], alpha=share / total)
    return merged


def difference(a: Named, b: Named) -> dict[str, Tensor]:
    """a - b, name by name."""
    return {name: a[name] - b[name] for name in a}


def shifted(a: Named, b: Named, scale: float = 1.0) -> dict[str, Tensor]:
    """a + scale * b for the names of b; the other names of a as they are."""
    return {name: tensor.add(b[name], alpha=scale) if name in b else tensor for name, tensor in a.items()}


def dot(a: Named, b: Named) -> Tensor:
    """The inner product over all names of a."""
    return sum(((a[name] * b[name]).sum() for name in a), start=next(iter(a.values())).new_zeros(()))
