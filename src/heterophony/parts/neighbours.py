"""A network that also looks up which of its participant's rows are most like the one to be predicted (kNN-Per)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.parts.features import features_of

KEPT = 2048  # rows that are remembered, at most


class Neighbours(nn.Module):
    """The predictions of a common network, mixed with the labels of those remembered rows whose features are nearest.

    A neighbour counts by exp(-distance). `share` is that of the neighbours, of which there are `nearest`. Outputs are
    logarithms of probabilities. Nothing of what is remembered travels.
    """

    features: Tensor
    labels: Tensor
    held: Tensor
    share: Tensor
    nearest: Tensor

    def __init__(self, common: nn.Module) -> None:
        super().__init__()
        self.common = common
        self.register_buffer("features", torch.zeros(KEPT, features_of(common, "kNN-Per")))
        self.register_buffer("labels", torch.zeros(KEPT, dtype=torch.int64))
        self.register_buffer("held", torch.zeros(KEPT))  # whether there is such a row: 1 or 0
        self.register_buffer("share", torch.tensor(0.5))
        self.register_buffer("nearest", torch.tensor(10))

    @torch.no_grad()
    def remember(self, features: Tensor, labels: Tensor) -> None:
        """Remember these rows, and none of those before."""
        count = min(len(labels), KEPT)
        self.features[:count], self.labels[:count] = features[:count], labels[:count]
        self.held.copy_((torch.arange(KEPT) < count).float())

    def forward(self, x: Tensor) -> Tensor:
        features = self.common.body(x)  # type: ignore[operator]
        told = self.common.head(features).softmax(1)  # type: ignore[operator]
        apart = torch.cdist(features.float(), self.features).masked_fill(self.held == 0, torch.inf)
        near, order = apart.sort(1)
        counts = (torch.arange(KEPT, device=x.device) < self.nearest) & near.isfinite()
        weights = torch.where(counts, near[:, :1] - near, -torch.inf).nan_to_num(nan=-torch.inf).exp()
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1e-12)
        said = torch.zeros_like(told, dtype=torch.float32).scatter_add(1, self.labels[order], weights)
        share = self.share * self.held[0]  # who remembers nothing has the common network alone
        outputs: Tensor = (share * said + (1 - share) * told).clamp_min(1e-12).log()
        return outputs
