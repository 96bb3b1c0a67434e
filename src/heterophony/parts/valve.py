"""A network whose features are turned to what is common, or to what is a participant's own, by a valve (GPFL)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heterophony.parts.features import head_of


class Classes(nn.Module):
    """A learnt vector for each class. Outputs are the cosines of features with them."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(classes, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x), F.normalize(self.table))


class Valve(nn.Module):
    """Scale and shift features by what a condition says. Rows are features with the condition behind them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width))
        self.shift = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tensor:
        features, condition = x.chunk(2, -1)
        turned: Tensor = F.relu(features * (1 + self.scale(condition)) + self.shift(condition))
        return turned


class TurnedFeatures(nn.Module):
    """A network of body and head, between which a valve turns features to what is the participant's `own`."""

    own: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        head = head_of(network, "GPFL")
        self.network = network
        self.valve = Valve(head.in_features)
        self.classes = Classes(head.out_features, head.in_features)
        self.register_buffer("own", torch.zeros(head.in_features))

    def forward(self, x: Tensor) -> Tensor:
        features = self.network.body(x)  # type: ignore[operator]
        turned = self.valve(torch.cat([features, self.own.expand_as(features)], -1))
        logits: Tensor = self.network.head(turned)  # type: ignore[operator]
        return logits
