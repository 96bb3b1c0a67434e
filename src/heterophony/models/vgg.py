"""VGG with eleven layers and BatchNorm for small images, used by FedH2L."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import GlobalMean, Halves, check_image, conv_bn

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(Halves):
    """Eight 3x3 convolutions with BatchNorm in five stages, each followed by 2x2 max pooling.

    Reference: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2015, column A.
    Parameters: 9,228,362 for 3x32x32 and 10 classes.
    Deviations: BatchNorm in place of convolution biases; one linear layer instead of three with dropout.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int) -> None:
        check_image("VGG11", in_channels, size, classes, smallest=17)
        layers: list[nn.Module] = []
        channels = in_channels
        for stage in STAGES:
            for outputs in stage:
                layers.append(conv_bn(channels, outputs))
                channels = outputs
            # Rounding up keeps something of a 28x28 image after five poolings.
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        super().__init__(nn.Sequential(*layers, GlobalMean()), channels, classes)
