"""AlexNet for small images, used by FedH2L."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import Halves, check_image


class AlexNet(Halves):
    """Five convolutions and two layers of 4096 units with dropout.

    Reference: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
    Parameters: 23,272,266 for 3x32x32 and 10 classes.
    Deviations: for 32x32 images 3x3 kernels with stride 2 in the first layer, 3x3 in the second, 2x2 pooling,
    and features pooled to 2x2 (6x6 in the paper); no local response normalisation.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, dropout: float = 0.5) -> None:
        check_image("AlexNet", in_channels, size, classes, smallest=15)
        side = (size + 1) // 2 // 2 // 2
        body = nn.Sequential(
            nn.Conv2d(in_channels, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 192, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            # AdaptiveMaxPool2d(2) written out: its own backward pass is not deterministic on GPUs.
            nn.MaxPool2d((side + 1) // 2, stride=side // 2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(256 * 2 * 2, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
        )
        super().__init__(body, 4096, classes)
