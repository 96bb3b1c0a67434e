"""Matrices as products of two smaller ones, as far as their energy (the sum of squared singular values) asks for."""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony.kernel.work import Named


def compressed(tensors: Named, energy: float) -> dict[str, Tensor]:
    """What `LowRank` carries: of each matrix the fewest singular values with this share of its energy.

    The left factor has the singular values in it. What is no matrix, or would not get smaller, stays as it is, and with
    a share of one everything does.
    """
    if energy >= 1:
        return dict(tensors)
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        factors = _factors(tensor.flatten(1), energy) if tensor.dim() > 1 and tensor.numel() else ()
        if factors and sum(factor.numel() for factor in factors) < tensor.numel():
            found |= {f"{name}/left": factors[0], f"{name}/right": factors[1]}
        else:
            found[name] = tensor
    return found


def restored(tensors: Named, like: Named) -> dict[str, Tensor]:
    """The matrices again, with names, shapes and device of `like`."""
    found = {}
    for name, model in like.items():
        if name in tensors:
            found[name] = tensors[name].to(model.device)
        else:
            left, right = (tensors[f"{name}/{side}"].to(model.device) for side in ("left", "right"))
            found[name] = (left @ right).view(model.shape)
    return found


def _factors(matrix: Tensor, energy: float) -> tuple[Tensor, ...]:
    wide = matrix.double().cpu()  # where it repeats to the bit
    if not torch.isfinite(wide).all():
        return ()  # of somebody who has diverged: refused at the receiver's door, as all that is not finite
    left, values, right = torch.linalg.svd(wide, full_matrices=False)
    kept = values.square().cumsum(0)
    rank = int(torch.searchsorted(kept, energy * kept[-1])) + 1
    return (left[:, :rank] * values[:rank]).to(matrix.dtype), right[:rank].to(matrix.dtype)
