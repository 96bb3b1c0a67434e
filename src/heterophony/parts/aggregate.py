"""Means and differences of named tensors. Everything works on values and returns new ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heterophony.kernel.fields import form_in_common
from heterophony.kernel.work import Named


def mean(items: Sequence[Named], shares: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Return the mean of named tensors, summed in the order given.

    `shares` says how much each item counts. Without shares, or where none is above zero, all count alike.
    """
    if not items:
        raise ValueError("the mean of no messages: a skipped round brings no mail, so test `if mail` first")
    if shares is None or not any(shares):
        shares = [1.0] * len(items)
    if len(shares) != len(items) or min(shares) < 0 or not sum(shares) > 0:
        raise ValueError(f"{len(items)} items need as many shares >= 0, got {list(shares)}")
    total = sum(shares)
    form = form_in_common(items)
    names = list(items[0] if form is None else form)
    # What are parts of one tensor are added as one.
    tensors = [[item[name] for name in names] if form is None else [item.whole] for item in items]  # type: ignore[attr-defined]
    merged = list(torch._foreach_mul(tensors[0], shares[0] / total))  # one launch for many tensors
    for own, share in zip(tensors[1:], shares[1:], strict=True):
        torch._foreach_add_(merged, own, alpha=share / total)
    if form is not None:
        merged = [part.clone() for part in form.parts(merged[0])]
    return dict(zip(names, merged, strict=True))


def average(items: Sequence[Tensor]) -> Tensor:
    """Return the mean of tensors of the same shape."""
    return torch.stack([item.float() for item in items]).mean(0)


def finite(named: Named) -> bool:
    """Return whether all numbers are finite. What a client sends may be so large that a sum of it is not."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in named.values())


def difference(a: Named, b: Named) -> dict[str, Tensor]:
    """Return a - b, name by name."""
    return {name: a[name] - b[name] for name in a}


def shifted(a: Named, b: Named, scale: float = 1.0) -> dict[str, Tensor]:
    """Return a + scale * b for the names of b, and the other tensors of a as they are."""
    return {name: tensor.add(b[name], alpha=scale) if name in b else tensor for name, tensor in a.items()}


def dot(a: Named, b: Named) -> Tensor:
    """Return the inner product over all names of a."""
    total = next(iter(a.values())).new_zeros(())
    for name in a:
        total = total + (a[name] * b[name]).sum()
    return total
