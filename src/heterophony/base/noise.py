"""Where the noise of privacy comes from: from the seed in a simulation, from the operating system at home.

A generator of torch would not do at home: its state follows from 32 bits, which can be tried one by one.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from heterophony.base.seeds import generator

_BITS = 2**53  # the numbers that a double tells apart in [0, 1)


class NoiseSource(Protocol):
    """Draws of numbers, in double precision, on the CPU."""

    def uniform(self, n: int) -> Tensor:
        """Return so many numbers in [0, 1)."""

    def normal(self, n: int) -> Tensor:
        """Return so many numbers of the standard normal distribution."""


class Seeded:
    """Draws that follow from what they are for: the same parts give the same numbers."""

    def __init__(self, *parts: object) -> None:
        self.generator = generator(*parts)

    def uniform(self, n: int) -> Tensor:
        return torch.rand(n, generator=self.generator, dtype=torch.float64)

    def normal(self, n: int) -> Tensor:
        return torch.randn(n, generator=self.generator, dtype=torch.float64)


@dataclass(frozen=True)
class System:
    """Draws from the operating system's entropy. Nobody can draw the same again."""

    def uniform(self, n: int) -> Tensor:
        drawn = torch.frombuffer(bytearray(secrets.token_bytes(8 * n)), dtype=torch.int64) if n else torch.empty(0)
        return (drawn.bitwise_and(_BITS - 1) if n else drawn).double() / _BITS

    def normal(self, n: int) -> Tensor:
        """Return normal numbers by Box and Muller's formula; each is the sum of two, halved in variance.

        With a sum, an observer of the last digits learns less of what the noise was added to.
        """
        return (self._normal(n) + self._normal(n)) / math.sqrt(2)

    def _normal(self, n: int) -> Tensor:
        radius = torch.sqrt(-2 * torch.log1p(-self.uniform(n)))
        return radius * torch.cos(2 * math.pi * self.uniform(n))
