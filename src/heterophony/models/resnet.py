"""Residual networks for small images, used by FCCL and FedH2L."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import GlobalMean, Halves, ResidualBlock, check_image, conv_bn

BLOCKS: dict[int, tuple[int, ...]] = {
    4: (1,),
    6: (1, 1),
    8: (1, 1, 1),
    10: (1, 1, 1, 1),
    12: (2, 1, 1, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


class ResNet(Halves):
    """ResNet of depth 10, 12, 18, 34, 50, 101 or 152: four stages, 64 to 512 wide (from 50 on 256 to 2048).

    The depths 4, 6 and 8 have one, two and three stages.
    Reference: He et al., "Deep Residual Learning for Image Recognition", 2016; depths 10 and 12: FCCL's code; depths 4,
    6 and 8: HtFLlib's.
    Parameters (3x32x32, 10 classes): 76,490 / 307,274 / 1,227,594 / 4,903,242 / 4,977,226 / 11,173,962 / 21,282,122 /
    23,520,842 / 42,512,970 / 58,156,618, from depth 4 on.
    Deviations: the first layer is 3x3 with stride 1 and no pooling follows it, as is usual for 32x32 images.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, depth: int = 18) -> None:
        if depth not in BLOCKS:
            raise ValueError(f"ResNet comes in the depths {', '.join(map(str, BLOCKS))}, got {depth}")
        check_image(f"ResNet{depth}", in_channels, size, classes, smallest=9)
        make, expansion = (_bottleneck, 4) if depth >= 50 else (_basic, 1)
        layers: list[nn.Module] = [conv_bn(in_channels, 64)]
        channels = 64
        for stage, count in enumerate(BLOCKS[depth]):
            width = 64 * 2**stage
            for block in range(count):
                stride = 2 if stage and not block else 1
                outputs = width * expansion
                same = stride == 1 and channels == outputs
                shortcut = nn.Identity() if same else conv_bn(channels, outputs, 1, stride, activation=None)
                layers += [ResidualBlock(make(channels, width, stride), shortcut), nn.ReLU()]
                channels = outputs
        super().__init__(nn.Sequential(*layers, GlobalMean()), channels, classes)


def _basic(inputs: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(conv_bn(inputs, width, stride=stride), conv_bn(width, width, activation=None))


def _bottleneck(inputs: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(
        conv_bn(inputs, width, 1),
        conv_bn(width, width, stride=stride),
        conv_bn(width, 4 * width, 1, activation=None),
    )
