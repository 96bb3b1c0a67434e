"""A small network for windows of several channels: `--set models.participants=sensor_nets:conv`."""

from torch import nn


def conv(shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, _ = shape
    return nn.Sequential(
        nn.Conv1d(channels, 16, 7, padding=3),
        nn.ReLU(),
        nn.MaxPool1d(4),
        nn.Conv1d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )
