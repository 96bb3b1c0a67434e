"""How the outputs of two models correlate, class by class."""

from __future__ import annotations

from torch import Tensor


def cross_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return the correlation over the rows of each class of `a` with each class of `b` (FCCL, Eq. 1).

    Both are logits: a row an example, a column a class.
    """
    a = a - a.mean(0)
    b = b - b.mean(0)
    scale = a.norm(dim=0).unsqueeze(1) * b.norm(dim=0).unsqueeze(0)
    matrix: Tensor = a.T @ b / scale.clamp_min(1e-12)
    return matrix
