"""Two networks as one: FedMRL's small common one beside a participant's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.parts.features import features_of


class Spliced(nn.Module):
    """Two networks whose features, side by side, a linear layer projects to as many as the wider one has.

    Each head reads the first of them, as many as its network has features. The outputs are those of `own`.
    Reference: Yi et al., "Federated Model Heterogeneous Matryoshka Representation Learning", 2024.
    """

    def __init__(self, small: nn.Module, own: nn.Module) -> None:
        super().__init__()
        widths = [features_of(network, "splicing") for network in (small, own)]
        self.small = small
        self.projector = nn.Linear(sum(widths), max(widths))
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        general = self.small.body(x)  # type: ignore[operator]
        own = self.own.body(x)  # type: ignore[operator]
        projected = self.projector(torch.cat([general, own], -1))
        logits: Tensor = self.own.head(projected[..., : own.shape[-1]])  # type: ignore[operator]
        return logits
