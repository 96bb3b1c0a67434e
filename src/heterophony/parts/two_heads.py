"""A common network with something of a client's own on its features: another head (FedRoD), or a shift (FedDBE)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.parts.features import features_of, head_of


class TwoHeads(nn.Module):
    """A network of body and head, and a second linear head, which begins as zeros. The outputs of both are added."""

    def __init__(self, common: nn.Module) -> None:
        super().__init__()
        head = head_of(common, "a second head")
        self.common = common
        self.own = nn.Linear(head.in_features, head.out_features)
        nn.init.zeros_(self.own.weight)
        nn.init.zeros_(self.own.bias)

    def forward(self, x: Tensor) -> Tensor:
        features = self.common.body(x)  # type: ignore[operator]
        logits: Tensor = self.common.head(features) + self.own(features)  # type: ignore[operator]
        return logits


class Shift(nn.Module):
    """Add a vector that is learnt, and begins as zeros."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


class ShiftedFeatures(nn.Module):
    """A network of body and head, between which a vector is added to the features."""

    def __init__(self, common: nn.Module) -> None:
        super().__init__()
        self.common = common
        self.own = Shift(features_of(common, "a shift of features"))

    def forward(self, x: Tensor) -> Tensor:
        features = self.common.body(x)  # type: ignore[operator]
        logits: Tensor = self.common.head(self.own(features))  # type: ignore[operator]
        return logits
