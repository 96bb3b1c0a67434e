"""FML's two convolutional networks, CNN1 and CNN2, FedAvg's, and FedMA's."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import Halves, check_image


class CNN1(Halves):
    """Two convolutions (6 and 16 channels), each with ReLU and 2x2 max pooling, and two linear layers.

    Reference: Shen et al., "Federated Mutual Learning", 2020, Section 5.1.
    Parameters: 52,202 for 3x32x32 and 10 classes; 71,498 with `kernel=3`.
    Deviations: 5x5 kernels, as in an early version of the authors' code; the paper prints 3x3 (`kernel=3`).
    The width of the hidden linear layer (120, as in LeNet-5) and the padding (none) are not printed.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, kernel: int = 5, hidden: int = 120) -> None:
        lost = kernel - 1
        check_image("CNN1", in_channels, size, classes, smallest=2 * (2 + lost) + lost)
        side = ((size - lost) // 2 - lost) // 2
        body = nn.Sequential(
            nn.Conv2d(in_channels, 6, kernel),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, kernel),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side * side, hidden),
            nn.ReLU(),
        )
        super().__init__(body, hidden, classes)


class CNN2(Halves):
    """Three 3x3 convolutions of 128 channels, each with ReLU and 2x2 max pooling, and one linear layer.

    Reference: Shen et al., "Federated Mutual Learning", 2020, Section 5.1.
    Parameters: 319,242 for 3x32x32 and 10 classes.
    Deviations: none known; the padding (1) is not printed.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int) -> None:
        check_image("CNN2", in_channels, size, classes, smallest=8)
        layers: list[nn.Module] = []
        for inputs in (in_channels, 128, 128):
            layers += [nn.Conv2d(inputs, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(nn.Sequential(*layers, nn.Flatten()), 128 * (size // 8) ** 2, classes)


class FedAvgCNN(Halves):
    """Two 5x5 convolutions of 32 and 64 channels, each with ReLU and 2x2 max pooling, and two linear layers.

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
    Parameters: 878,538 for 3x32x32 and 10 classes.
    Deviations: no padding, as in HtFLlib's FedAvgCNN; the paper's 1,663,370 for 1x28x28 require padding.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, hidden: int = 512) -> None:
        check_image("FedAvgCNN", in_channels, size, classes, smallest=16)
        side = ((size - 4) // 2 - 4) // 2
        body = nn.Sequential(
            nn.Conv2d(in_channels, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, hidden),
            nn.ReLU(),
        )
        super().__init__(body, hidden, classes)


class ModerateCNN(Halves):
    """Three pairs of 3x3 convolutions (32 to 256 channels), each with 2x2 max pooling, and three linear layers.

    Reference: Wang et al., "Federated Learning with Matched Averaging", 2020: its authors' code. NVFlare's
    example for CIFAR-10 has the same network.
    Parameters: 3,491,530 for 3x32x32 and 10 classes.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, hidden: int = 512) -> None:
        check_image("ModerateCNN", in_channels, size, classes, smallest=8)
        layers: list[nn.Module] = []
        inputs = in_channels
        for first, second in ((32, 64), (128, 128), (256, 256)):
            layers += [nn.Conv2d(inputs, first, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            layers += [nn.Dropout2d(0.05)] if first == 128 else []
            inputs = second
        layers += [nn.Flatten(), nn.Dropout(0.1), nn.Linear(256 * (size // 8) ** 2, hidden), nn.ReLU()]
        layers += [nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.1)]
        super().__init__(nn.Sequential(*layers), hidden, classes)
