"""The mean and deviation of arrays in each feature or channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Moments:
    """The mean and the deviation of each feature (or channel) of some rows. One that never changes is left at 0."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, parts: list[Array]) -> Moments:
        """Measure rows that lie in several arrays; their second axis is that of features."""
        count, total, squares = 0, 0.0, 0.0
        for part in parts:
            count += part.size // part.shape[1]
            total = total + part.sum(axis=_others(part), dtype=np.float64)
        mean = total / max(count, 1)
        for part in parts:
            apart = part.astype(np.float64) - _beside(np.asarray(mean), part)
            squares = squares + np.square(apart).sum(axis=_others(part))
        deviation = np.sqrt(np.asarray(squares) / max(count, 1))
        # What is rounded off in a constant is no deviation.
        constant = deviation <= 1e-7 * np.abs(mean)
        return cls(np.asarray(mean), np.where(constant, 1.0, deviation))

    def applied(self, x: Array) -> Array:
        """Return rows as they are after standardisation."""
        made: Array = ((x - _beside(self.mean, x)) / _beside(self.deviation, x)).astype(np.float32)
        return made


def _others(x: Array) -> tuple[int, ...]:
    """Return all axes but that of features."""
    return tuple(axis for axis in range(x.ndim) if axis != 1)


def _beside(values: Array, x: Array) -> Array:
    """Return one number for each feature in a shape that goes with rows."""
    return values.reshape([1, -1] + [1] * (x.ndim - 2))
