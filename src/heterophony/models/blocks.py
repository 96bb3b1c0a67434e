"""What the networks share: the split into body and head, the check of sizes, and a few small layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Halves(nn.Module):
    """A classifier in two parts: `body` gives a flat feature vector, `head` (a linear layer) the logits.

    Either part can be shared between participants while the other stays private.
    """

    def __init__(self, body: nn.Module, features: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


class ResidualBlock(nn.Module):
    """The sum of two branches of the same input: a residual connection."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.branch(x) + self.shortcut(x)
        return total


class GlobalMean(nn.Module):
    """The mean over all positions, which makes a feature vector of a map of any size."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Turned(nn.Module):
    """(rows, places, width) as (rows, width, places), or the other way round."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def conv_bn(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution that keeps the size (but for its stride), BatchNorm, and an activation unless `None`."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    layers = [conv, nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation()] if activation else []))


def check_image(network: str, in_channels: int, size: int, classes: int, smallest: int) -> None:
    """Refuse what the network cannot be built for; `smallest` is the least image side it can take.

    For networks with BatchNorm that is the side at which its last BatchNorm still sees more than one value
    a channel in a batch of one image.
    """
    if size < smallest:
        raise ValueError(f"{network} needs images of at least {smallest}x{smallest} pixels, got {size}x{size}")
    if in_channels < 1 or classes < 1:
        got = f"in_channels={in_channels}, classes={classes}"
        raise ValueError(f"{network} needs at least one channel and one class, got {got}")


def check_row(network: str, shape: Sequence[int], classes: int, form: str, axes: tuple[int, ...]) -> None:
    """Refuse rows that have another number of axes than these, an axis without places, or no class."""
    if len(shape) not in axes:
        raise ValueError(f"{network} reads rows {form}, got rows of the shape {tuple(shape)}")
    if min(shape) < 1 or classes < 1:
        raise ValueError(f"{network} needs rows with values and at least one class, got {tuple(shape)} and {classes}")
