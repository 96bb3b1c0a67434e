"""How the outputs of two models correlate, class by class, and the loss that FCCL makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heterophony.data.table import Data
from heterophony.kernel.node import Node
from heterophony.kernel.work import Note, Predict, Steps
from heterophony.parts.losses import Nets


def cross_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return the correlation over the rows of each class of `a` with each class of `b` (FCCL, Eq. 1).

    Both are logits: a row an example, a column a class.
    """
    a = a - a.mean(0)
    b = b - b.mean(0)
    scale = a.norm(dim=0).unsqueeze(1) * b.norm(dim=0).unsqueeze(0)
    matrix: Tensor = a.T @ b / scale.clamp_min(1e-12)
    return matrix


def correlation_loss(matrix: Tensor, lambda_col: float) -> Tensor:
    """Return FCCL's Eq. 2 of a matrix of correlations. `lambda_col` weighs what is off the diagonal."""
    diagonal = torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
    return torch.where(diagonal, (1 - matrix) ** 2, lambda_col * (1 + matrix) ** 2).sum()


@dataclass(frozen=True)
class CollaborativeLoss:
    """FCCL's Eq. 2, on public rows beside which the column `zbar` stands, the mean of what clients say of them."""

    lambda_col: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        matrix = cross_correlation(nets["model"](batch.x), batch.zbar)
        return {"model": {"correlation": correlation_loss(matrix, self.lambda_col)}}


def full_batches(batch: int | None, rows: int) -> bool:
    """Return whether to leave a short last batch out: its correlations would be noise."""
    return batch is not None and rows > batch


def note_correlations(client: Node, rows: Tensor | None, zbar: Tensor) -> Steps:
    """Note how a client's outputs on these public rows correlate with Z-bar, on the diagonal and off it."""
    outputs = yield Predict("model", "public", rows)
    matrix = cross_correlation(outputs, zbar)
    classes, diagonal = len(matrix), matrix.diagonal()
    yield Note("correlation.on", float(diagonal.mean()))
    yield Note("correlation.off", float((matrix.sum() - diagonal.sum()) / max(1, classes**2 - classes)))
