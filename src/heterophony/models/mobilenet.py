"""MobileNetV2 for small images, used by FCCL."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import GlobalMean, Halves, ResidualBlock, check_image, conv_bn

# expansion, channels, blocks, stride of the first block
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(Halves):
    """Inverted residual blocks with linear bottlenecks and ReLU6.

    Reference: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
    Parameters: 2,236,682 for 3x32x32 and 10 classes.
    Deviations: stride 1 in the first layer and in the 24-channel stage, for 32x32 images; no dropout.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int) -> None:
        check_image("MobileNetV2", in_channels, size, classes, smallest=9)
        layers: list[nn.Module] = [conv_bn(in_channels, 32, activation=nn.ReLU6)]
        channels = 32
        for expansion, outputs, count, first_stride in STAGES:
            for block in range(count):
                layers.append(_block(channels, outputs, expansion, 1 if block else first_stride))
                channels = outputs
        body = nn.Sequential(*layers, conv_bn(channels, 1280, 1, activation=nn.ReLU6), GlobalMean())
        super().__init__(body, 1280, classes)


def _block(inputs: int, outputs: int, expansion: int, stride: int) -> nn.Module:
    width = inputs * expansion
    expand = [conv_bn(inputs, width, 1, activation=nn.ReLU6)] if expansion > 1 else []
    branch = nn.Sequential(
        *expand,
        conv_bn(width, width, stride=stride, groups=width, activation=nn.ReLU6),
        conv_bn(width, outputs, 1, activation=None),
    )
    return ResidualBlock(branch, nn.Identity()) if stride == 1 and inputs == outputs else branch
