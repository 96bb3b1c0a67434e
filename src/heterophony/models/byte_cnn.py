"""A small classifier of texts as bytes."""

from __future__ import annotations

from torch import Tensor, nn

from heterophony.data.text import BYTES
from heterophony.models.blocks import Halves, Turned, check_image


class Most(nn.Module):
    """The largest value of each channel over all places: a feature is there, wherever it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(-1)


class ByteCNN(Halves):
    """Bytes in 32 dimensions, two convolutions of 96 channels over five bytes with ReLU, the largest over all places.

    Reference: Zhang, Zhao and LeCun, "Character-level Convolutional Networks for Text Classification", 2015, for the
    idea; this one is far smaller.
    Parameters: 70,503 with seven classes.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, width: int = 96) -> None:
        check_image("ByteCNN", in_channels, size, classes, smallest=16)
        body = nn.Sequential(
            nn.Embedding(BYTES, 32),
            Turned(),
            nn.Conv1d(32, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            Most(),
        )
        super().__init__(body, width, classes)
