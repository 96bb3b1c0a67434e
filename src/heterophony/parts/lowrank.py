"""Matrices as products of two smaller ones. A matrix's energy is the sum of its squared singular values."""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony.kernel.work import Named


def compressed(tensors: Named, energy: float) -> dict[str, Tensor]:
    """Return what the field `LowRank` carries: each matrix as two factors, where that is smaller.

    The factors keep the fewest singular values that have this share of the matrix's energy; these values are in the
    left factor. A tensor stays as it is if it is no matrix, or would not get smaller. With a share of one, all do.
    """
    if energy >= 1:
        return dict(tensors)
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        factors: tuple[Tensor, ...] = ()
        if tensor.dim() > 1 and tensor.numel():
            factors = _factors(tensor.flatten(1), energy)
        if factors and sum(factor.numel() for factor in factors) < tensor.numel():
            left, right = factors
            found[f"{name}/left"] = left
            found[f"{name}/right"] = right
        else:
            found[name] = tensor
    return found


def restored(tensors: Named, like: Named) -> dict[str, Tensor]:
    """Return the matrices again, with the names, shapes and devices of `like`."""
    found = {}
    for name, model in like.items():
        if name in tensors:
            found[name] = tensors[name].to(model.device)
        else:
            left = tensors[f"{name}/left"].to(model.device)
            right = tensors[f"{name}/right"].to(model.device)
            found[name] = (left @ right).view(model.shape)
    return found


def _factors(matrix: Tensor, energy: float) -> tuple[Tensor, ...]:
    """Return the left and the right factor, or nothing for a matrix that is not finite."""
    wide = matrix.double().cpu()  # there the decomposition repeats to the bit
    if not torch.isfinite(wide).all():
        return ()  # it travels as it is, and the receiver's door refuses it
    left, values, right = torch.linalg.svd(wide, full_matrices=False)
    kept = values.square().cumsum(0)
    rank = int(torch.searchsorted(kept, energy * kept[-1])) + 1
    scaled = left[:, :rank] * values[:rank]
    return scaled.to(matrix.dtype), right[:rank].to(matrix.dtype)
