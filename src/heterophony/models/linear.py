"""The linear model: logistic regression for classes, linear regression for numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from heterophony.models.blocks import Halves, check_image


class Linear(Halves):
    """One linear layer from the values of a row, whatever its shape, to the outputs; the body only flattens.

    Parameters: 14 for 13 values and one output, 30,730 for 3x32x32 and 10 classes.
    """

    def __init__(self, *, shape: Sequence[int], classes: int) -> None:
        if len(shape) == 3:
            check_image("Linear", shape[0], min(shape[1:]), classes, smallest=1)
        super().__init__(nn.Flatten(), math.prod(shape), classes)
