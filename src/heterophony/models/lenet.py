"""LeNet-5, used by FML and FedH2L, and the larger network that goes by the name of LeNet."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import Halves, check_image


class LeNet5(Halves):
    """Two 5x5 convolutions (6 and 16 channels), each with ReLU and pooling, and layers of 120 and 84 units.

    Reference: LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
    Parameters: 61,706 for 1x28x28 and 62,006 for 3x32x32, both with 10 classes.
    Deviations: ReLU, max pooling, full connections and a linear head, as in FML's code, instead of tanh,
    trained subsampling, the partial connection table and radial basis outputs.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int) -> None:
        check_image("LeNet5", in_channels, size, classes, smallest=16)
        # The paper centres its 28x28 digits in a field of 32x32.
        padding = 2 if size == 28 else 0
        side = ((size + 2 * padding - 4) // 2 - 4) // 2
        body = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side * side, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        super().__init__(body, 84, classes)


class LeNetCaffe(Halves):
    """Two 5x5 convolutions (20 and 50 channels), each with pooling, and a layer of 500 units with ReLU.

    Reference: Jia et al., "Caffe: Convolutional Architecture for Fast Feature Embedding", 2014: its example for MNIST.
    Parameters: 431,080 for 1x28x28 and 657,080 for 3x32x32, both with 10 classes.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int) -> None:
        check_image("LeNetCaffe", in_channels, size, classes, smallest=16)
        side = ((size - 4) // 2 - 4) // 2
        body = nn.Sequential(
            nn.Conv2d(in_channels, 20, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(50 * side * side, 500),
            nn.ReLU(),
        )
        super().__init__(body, 500, classes)
