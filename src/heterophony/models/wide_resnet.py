"""Wide residual networks of any depth and width, used by FedMD+Global."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

from heterophony.models.blocks import GlobalMean, Halves, ResidualBlock, check_image

Init = Literal["torch", "fan-out"]


class WideResNet(Halves):
    """WRN-d-k: three groups of (d - 4) / 6 pre-activation blocks, 16k, 32k and 64k channels wide.

    Reference: Zagoruyko and Komodakis, "Wide Residual Networks", 2016.
    Parameters: 78,186 for WRN-10-1 and 565,386 for WRN-40-1 (3x32x32, 10 classes); with FedMD+Global's 30
    classes the depths 10, 16, ..., 40 give its 79k, 177k, 274k, 372k, 469k and 567k.
    Deviations: convolutions have a bias, which those counts require (without it the depth 16 gives 176k
    and the depth 40 gives 565k); no dropout.

    `init` says how convolutions begin: "torch" is torch's own way; "fan-out" draws weights from a normal by fan-out and
    has biases of zero, as the authors of the network do. FedMD+Global's paper does not say which it has.
    """

    def __init__(
        self, *, in_channels: int, size: int, classes: int, depth: int = 16, width: int = 1, init: Init = "torch"
    ) -> None:
        name = f"WRN-{depth}-{width}"
        if depth < 10 or depth % 6 != 4 or width < 1:
            raise ValueError(f"{name}: the depth must be 6n + 4 (10, 16, 22, ...) and the width at least 1")
        check_image(name, in_channels, size, classes, smallest=5)
        conv = partial(_conv, init=init)
        layers: list[nn.Module] = [conv(in_channels, 16)]
        channels = 16
        for group, outputs in enumerate((16 * width, 32 * width, 64 * width)):
            for block in range((depth - 4) // 6):
                layers.append(_block(conv, channels, outputs, stride=2 if group and not block else 1))
                channels = outputs
        body = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), GlobalMean())
        super().__init__(body, channels, classes)


def _block(conv: Callable[..., nn.Module], inputs: int, outputs: int, stride: int) -> nn.Module:
    before = [nn.BatchNorm2d(inputs), nn.ReLU()]
    branch = [
        conv(inputs, outputs, stride=stride),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        conv(outputs, outputs),
    ]
    if inputs == outputs and stride == 1:
        return ResidualBlock(nn.Sequential(*before, *branch), nn.Identity())
    # Where the width changes, the shortcut too starts from the activated input, as in the authors' code.
    shortcut = conv(inputs, outputs, kernel=1, stride=stride)
    return nn.Sequential(*before, ResidualBlock(nn.Sequential(*branch), shortcut))


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *, init: Init) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
    if init == "fan-out":
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)
    return conv
