"""A linear head that networks of different widths have in common.

It is a matrix with one row for each class: a weight for each group of features, and the bias in the last column. A
network's features are put into groups of neighbours (`features.pooled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from heterophony.data.errors import DataError
from heterophony.kernel.node import Node, copy_into
from heterophony.kernel.work import Steps
from heterophony.parts.features import head_of, misfit, pooled, width_of

LONGEST = 50.0  # a server's gradient is not longer: the means of a client that lies may be huge


@dataclass(frozen=True)
class TaughtHead:
    """A head that clients have in common. The server trains it on rows of features that they send.

    The server's variable "head" keeps it from round to round. It begins at zero, and anew where most clients have other
    features or classes than before.
    """

    head_epochs: Annotated[int, "how often the server goes over the rows that clients have sent"] = 100
    head_lr: Annotated[float, "rate of the server's steps, one for each row"] = 0.01
    width: Annotated[int | None, "features are averaged in so many groups; none: they are taken as they are"] = None

    def __post_init__(self) -> None:
        if self.head_epochs < 1 or not self.head_lr > 0 or (self.width is not None and self.width < 1):
            given = f"{self.head_epochs}, {self.head_lr} and {self.width}"
            raise ValueError(f"head_epochs and width are numbers >= 1 and head_lr is a rate > 0, got {given}")

    def read(self, client: Node, asker: str) -> int:
        """Return how many features of this client the common head reads."""
        return biased_width(client.models["model"], asker, self.width)

    def known(self, server: Node) -> Tensor:
        """Return the head as it is sent; empty where there is none yet."""
        head: Tensor = server.vars.get("head", torch.zeros(0, 0))
        return head

    def teach(self, server: Node, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Train the head on pairs of features and shares of classes, all of one shape. Without any it stays."""
        if not pairs:
            return
        features, shares = pairs[0]
        head, shape = self.known(server), (len(shares), len(features) + 1)
        if head.shape != shape:
            head = torch.zeros(shape)
        server.vars["head"] = taught_head(head, pairs, self.head_epochs, self.head_lr)


def biased_width(network: nn.Module, asker: str, width: int | None) -> int:
    """Return how many features the common head reads; raise for a network that cannot be given a common head."""
    if head_of(network, asker).bias is None:
        raise DataError(f"{asker} needs networks whose head has a bias, as the common network's head has")
    return width_of(network, asker, width)


def replaced(client: Node, head: Tensor, width: int, asker: str) -> Steps:
    """Replace the client's head by the common one, so that it gives what that gives for means of groups.

    An empty common head means that there is none yet. One that does not fit is noted. In both cases the client keeps
    its own.
    """
    own = head_of(client.models["model"], asker)
    if head.shape == (own.out_features, width + 1):
        groups = pooled(torch.eye(own.in_features), width).to(head)  # a head may come on the device
        weight = head[:, :-1] @ groups.T
        copy_into([own.weight, own.bias], [weight, head[:, -1]])
    elif len(head):
        yield misfit(client, "a head", (len(head), head.shape[1] - 1), (own.out_features, width))


def grouped(own: nn.Linear, width: int) -> Tensor:
    """Return a network's head as a common one: for features that are equal within each group, both give the same.

    `replaced` is the way back.
    """
    weight = own.weight.detach().cpu().float()
    bias = own.bias.detach().cpu().float().unsqueeze(1)
    if own.in_features != width:
        weight = weight @ repeated(torch.eye(width), own.in_features).T
    return torch.cat([weight, bias], 1)


def repeated(features: Tensor, count: int) -> Tensor:
    """Return `count` features, equal within each group, of which `pooled` gives these features back."""
    width = features.shape[-1]
    if count == width:
        return features
    group = torch.arange(count) * width // count
    return features[..., group]


def taught_head(head: Tensor, pairs: Sequence[tuple[Tensor, Tensor]], epochs: int, lr: float) -> Tensor:
    """Return a common head after `epochs` passes over pairs of features and shares of classes.

    With each pair it takes a step of SGD on the cross-entropy.
    """
    head, one = head.double(), torch.ones(1, dtype=torch.float64)
    known = [(torch.cat([features.double(), one]), shares.double()) for features, shares in pairs]
    for _ in range(epochs):
        for features, shares in known:  # the bias reads the one
            # The gradient of cross-entropy is the outer product of these two.
            slope = (head @ features).softmax(0) - shares
            length = float(slope.norm() * features.norm())
            head = head.addr(slope, features, alpha=-lr * LONGEST / max(length, LONGEST))
    return head.float()
