"""How much an update counts that comes late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Staleness:
    """The share that is left of an update made s merges ago (FedAsync, Section 5.2; FedBuff: polynomial, 1/2).

    `polynomial` is (1 + s)^-a; `hinge` is 1 up to s = b and 1 / (a (s - b) + 1) beyond; `constant` is 1.
    """

    kind: Literal["polynomial", "hinge", "constant"] = "polynomial"
    a: float = 0.5
    b: int = 4

    def __post_init__(self) -> None:
        if self.a < 0 or self.b < 0:
            raise ValueError(f"a staleness discount needs a >= 0 and b >= 0, got {self.a} and {self.b}")

    def discount(self, s: float) -> float:
        if self.kind == "polynomial":
            return float((1 + s) ** -self.a)
        if self.kind == "hinge" and s > self.b:
            return 1 / (self.a * (s - self.b) + 1)
        return 1.0
