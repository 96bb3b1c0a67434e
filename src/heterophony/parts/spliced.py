"""Two networks as one: FedMRL's small common one beside a participant's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.parts.features import features_of


class Spliced(nn.Module):
    """The features of two networks, side by side, projected by a linear layer to as many as the wider one has.

    Each head reads the first of them, as many as its network has features; the outputs are those of `own`.
    Reference: Yi et al., "Federated Model Heterogeneous Matryoshka Representation Learning", 2024.
    """

    def __init__(self, small: nn.Module, own: nn.Module) -> None:
        super().__init__()
        widths = [features_of(network, "splicing") for network in (small, own)]
        self.small = small
        self.projector = nn.Linear(sum(widths), max(widths))
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        general, own = self.small.body(x), self.own.body(x)  # type: ignore[operator]
        logits: Tensor = self.own.head(self.projector(torch.cat([general, own], -1))[..., : own.shape[-1]])  # type: ignore[operator]
        return logits
