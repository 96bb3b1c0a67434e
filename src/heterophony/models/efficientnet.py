"""EfficientNet-B0 for small images, used by FCCL."""

from __future__ import annotations

from torch import Tensor, nn

from heterophony.models.blocks import GlobalMean, Halves, ResidualBlock, check_image, conv_bn

# expansion, channels, blocks, stride of the first block, kernel
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class EfficientNetB0(Halves):
    """Inverted residual blocks with squeeze-and-excitation and SiLU.

    Reference: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", 2019.
    Parameters: 4,020,358 for 3x32x32 and 10 classes.
    Deviations: stride 1 in the first layer, for 32x32 images; no stochastic depth; `dropout` before the head
    is 0 unless asked for (0.2 in the paper); PyTorch's own BatchNorm constants.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, dropout: float = 0.0) -> None:
        check_image("EfficientNet-B0", in_channels, size, classes, smallest=17)
        layers: list[nn.Module] = [conv_bn(in_channels, 32, activation=nn.SiLU)]
        channels = 32
        for expansion, outputs, count, first_stride, kernel in STAGES:
            for block in range(count):
                layers.append(_block(channels, outputs, expansion, 1 if block else first_stride, kernel))
                channels = outputs
        layers += [conv_bn(channels, 1280, 1, activation=nn.SiLU), GlobalMean()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        super().__init__(nn.Sequential(*layers), 1280, classes)


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate computed from the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            GlobalMean(),
            nn.Linear(channels, squeezed),
            nn.SiLU(),
            nn.Linear(squeezed, channels),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.gate(x)
        return x * gate[:, :, None, None]


def _block(inputs: int, outputs: int, expansion: int, stride: int, kernel: int) -> nn.Module:
    width = inputs * expansion
    expand = [conv_bn(inputs, width, 1, activation=nn.SiLU)] if expansion > 1 else []
    branch = nn.Sequential(
        *expand,
        conv_bn(width, width, kernel, stride, groups=width, activation=nn.SiLU),
        SqueezeExcite(width, inputs // 4),
        conv_bn(width, outputs, 1, activation=None),
    )
    return ResidualBlock(branch, nn.Identity()) if stride == 1 and inputs == outputs else branch
