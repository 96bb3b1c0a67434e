"""How the outputs of two models go together, class by class."""

from __future__ import annotations

from torch import Tensor


def cross_correlation(a: Tensor, b: Tensor) -> Tensor:
    """The matrix of correlations between the classes of two sets of logits, over the rows (FCCL, Eq. 1)."""
    a, b = a - a.mean(0), b - b.mean(0)
    scale = a.norm(dim=0).unsqueeze(1) * b.norm(dim=0).unsqueeze(0)
    matrix: Tensor = a.T @ b / scale.clamp_min(1e-12)
    return matrix
