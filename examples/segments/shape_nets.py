"""A small network for masks: `--set models.participants=shape_nets:small`. It keeps the sides of a picture."""

from torch import nn


def small(shape: tuple[int, ...], classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, step in ((shape[0], 1), (12, 2), (12, 4), (12, 1)):  # steps apart: each sees further
        layers += [nn.Conv2d(inputs, 12, 3, padding=step, dilation=step), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(12, classes, 1))
