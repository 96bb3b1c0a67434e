"""A head that networks of different widths have in common: a row a class, its weights of so many groups of features
and its bias. A network's own features are in groups of neighbours (`features.pooled`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.data.errors import DataError
from heterophony.kernel.node import Node, copy_into
from heterophony.kernel.work import Steps
from heterophony.parts.features import head_of, misfit, pooled, width_of


def biased_width(network: nn.Module, asker: str, width: int | None) -> int:
    """How many features the common head reads; raises for a network that cannot be given one."""
    if head_of(network, asker).bias is None:
        raise DataError(f"{asker} needs networks whose head has a bias: the common one has")
    return width_of(network, asker, width)


def replaced(client: Node, head: Tensor, width: int, asker: str) -> Steps:
    """Put the common head, if there is one, in the place of the client's: the same outputs from means of groups.

    One that does not fit is noted, and the client keeps its own.
    """
    own = head_of(client.models["model"], asker)
    if head.shape == (own.out_features, width + 1):
        groups = pooled(torch.eye(own.in_features), width).to(head)  # a head may come on the device
        weight = head[:, :-1] @ groups.T
        copy_into([own.weight, own.bias], [weight, head[:, -1]])
    elif len(head):
        yield misfit(client, "a head", (len(head), head.shape[1] - 1), (own.out_features, width))


def grouped(own: nn.Linear, width: int) -> Tensor:
    """What a head makes of features that are equal within each group, as a common one: `replaced` gives it back."""
    weight = own.weight.detach().cpu().float()
    sums = weight if own.in_features == width else weight @ repeated(torch.eye(width), own.in_features).T
    return torch.cat([sums, own.bias.detach().cpu().float().unsqueeze(1)], 1)


def repeated(features: Tensor, count: int) -> Tensor:
    """So many features as groups of equal ones: their `pooled` are what was given."""
    width = features.shape[-1]
    return features if count == width else features[..., torch.arange(count) * width // count]
