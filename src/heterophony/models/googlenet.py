"""GoogLeNet with BatchNorm for small images, used by FCCL."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.models.blocks import GlobalMean, Halves, check_image, conv_bn

# The paper's Table 1; a row: 1x1 | 3x3 reduce, 3x3 | 5x5 reduce, 5x5 | pool projection
STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


class GoogLeNet(Halves):
    """Nine inception modules with BatchNorm after every convolution.

    Reference: Szegedy et al., "Going Deeper with Convolutions", 2015; BatchNorm: Ioffe and Szegedy, 2015.
    Parameters: 5,871,914 for 3x32x32 and 10 classes.
    Deviations: one 3x3 convolution of 192 channels in place of the first layers, for 32x32 images; no
    auxiliary classifiers, no local response normalisation, no dropout.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int) -> None:
        check_image("GoogLeNet", in_channels, size, classes, smallest=5)
        layers: list[nn.Module] = [conv_bn(in_channels, 192)]
        channels = 192
        for stage, rows in enumerate(STAGES):
            if stage:
                layers.append(nn.MaxPool2d(3, stride=2, padding=1))
            for row in rows:
                layers.append(Inception(channels, *row))
                channels = row[0] + row[2] + row[4] + row[5]
        super().__init__(nn.Sequential(*layers, GlobalMean()), channels, classes)


class Inception(nn.Module):
    """Convolutions of 1x1, 3x3, 5x5 and a pooling, side by side on the same input."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv_bn(inputs, one, 1),
                nn.Sequential(conv_bn(inputs, reduce3, 1), conv_bn(reduce3, three, 3)),
                nn.Sequential(conv_bn(inputs, reduce5, 1), conv_bn(reduce5, five, 5)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_bn(inputs, pool, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)
