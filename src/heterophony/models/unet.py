"""A U-Net, which gives a class for each pixel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heterophony.models.blocks import check_row


class Level(nn.Module):
    """One level of the U: two convolutions, what lies below at half the side, and two convolutions of both together."""

    def __init__(self, inputs: int, width: int, below: nn.Module | None) -> None:
        super().__init__()
        self.down = _twice(inputs, width)
        self.below = below
        if below is not None:
            self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
            self.joined = _twice(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        here: Tensor = self.down(x)
        if self.below is None:
            return here
        risen = self.up(self.below(F.max_pool2d(here, 2)))
        joined: Tensor = self.joined(torch.cat([here, risen], 1))
        return joined


class Padded(nn.Module):
    """A network for images whose sides are multiples of `step`: others get zeros at two sides, and are cut back."""

    def __init__(self, inner: nn.Module, sides: tuple[int, int], step: int) -> None:
        super().__init__()
        self.inner, self.sides, self.step = inner, sides, step

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.sides
        grown: Tensor = self.inner(F.pad(x, (0, -width % self.step, 0, -height % self.step)))
        return grown[:, :, :height, :width]


class UNet(nn.Module):
    """Images (rows, channels, H, W) to logits (rows, classes, H, W), by four levels 16, 32, 64 and 128 wide.

    `body` gives 16 features for each pixel, `head` (a 1x1 convolution) the logits.
    Reference: Ronneberger, Fischer and Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015.
    Parameters: 482,466 for one channel and 2 classes.
    Deviations: four levels of a quarter of the width (16 to 128, not 64 to 1024, and five); padded convolutions, so
    that masks have the size of images; GroupNorm before each ReLU, which needs no statistics of a batch; no dropout.
    """

    def __init__(self, *, shape: Sequence[int], classes: int, width: int = 16, levels: int = 4) -> None:
        check_row("UNet", shape, classes, "(channels, height, width)", (3,))
        channels, step = shape[0], 2 ** (levels - 1)
        if min(shape[1:]) < step:
            raise ValueError(f"UNet needs images of at least {step}x{step} pixels, got {shape[1]}x{shape[2]}")
        super().__init__()
        below: Level | None = None
        for level in reversed(range(levels)):
            inputs = width * 2 ** (level - 1) if level else channels
            below = Level(inputs, width * 2**level, below)
        assert below is not None
        fits = not (shape[1] % step or shape[2] % step)
        self.body: nn.Module = below if fits else Padded(below, (shape[1], shape[2]), step)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def _twice(inputs: int, width: int) -> nn.Sequential:
    """Return two convolutions that keep the size, each with GroupNorm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, width):
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.GroupNorm(4, width), nn.ReLU()]
    return nn.Sequential(*layers)
