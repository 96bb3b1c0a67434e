"""A participant's own network mixed with a copy of the global one: by weights (APFL), or by outputs (MAPPER)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call


class MixedWeights(nn.Module):
    """The network whose weights are `share` of `own` and the rest of `common`, which learns nothing from it.

    BatchNorm's statistics are those of `own`.
    """

    def __init__(self, own: nn.Module, common: nn.Module) -> None:
        super().__init__()
        self.own, self.common = own, common
        self.share = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        common = dict(self.common.named_parameters())
        mixed = {}
        for name, own in self.own.named_parameters():
            mixed[name] = self.share * own + (1 - self.share) * common[name].detach()
        outputs: Tensor = functional_call(self.own, mixed, (x,))
        return outputs


class MixedOutputs(nn.Module):
    """Two networks whose outputs are added: `share` of those of `own`, and the rest of those of `common`."""

    share: Tensor

    def __init__(self, own: nn.Module, common: nn.Module) -> None:
        super().__init__()
        self.own, self.common = own, common
        self.register_buffer("share", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.share * self.own(x) + (1 - self.share) * self.common(x)
        return outputs
