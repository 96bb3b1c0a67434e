"""A participant's own network mixed with a copy of the global one: by weights (APFL), outputs (MAPPER) or a gate."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from heterophony.kernel.work import Named


def named_for_clients(weights: Named) -> dict[str, Tensor]:
    """Return the server's weights under the names that they have in its clients' pairs of networks."""
    return {f"common.{name}": tensor for name, tensor in weights.items()}


def named_for_server(weights: Named) -> dict[str, Tensor]:
    """Return the weights of a client's `common` under the names that they have at the server."""
    return {name.removeprefix("common."): tensor for name, tensor in weights.items()}


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


class GatedOutputs(nn.Module):
    """Two networks whose probabilities are mixed, for each row by what a third one says of it.

    The share of `own` is the logistic function of the first output of `gate`. Outputs are logarithms of probabilities.
    """

    def __init__(self, own: nn.Module, common: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.own, self.common, self.gate = own, common, gate

    def forward(self, x: Tensor) -> Tensor:
        told = self.gate(x)[:, :1]
        own, common = self.own(x).log_softmax(1), self.common(x).log_softmax(1)
        return torch.logaddexp(F.logsigmoid(told) + own, F.logsigmoid(-told) + common)
