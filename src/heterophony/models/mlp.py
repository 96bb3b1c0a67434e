"""The multi-layer perceptron of the FedAvg paper, used by FML."""

from __future__ import annotations

from torch import nn

from heterophony.models.blocks import Halves, check_image


class MLP(Halves):
    """Two hidden layers of 200 units with ReLU (the "2NN").

    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", 2017.
    Parameters: 199,210 for 1x28x28 and 656,810 for 3x32x32, both with 10 classes.
    Deviations: none; the 3x32x32 form is FML's.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, hidden: int = 200) -> None:
        check_image("MLP", in_channels, size, classes, smallest=1)
        inputs = in_channels * size * size
        body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        super().__init__(body, hidden, classes)
