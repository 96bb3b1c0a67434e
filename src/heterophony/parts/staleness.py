"""How much a late update counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal


@dataclass(frozen=True)
class Staleness:
    """The share of an update that counts when it was made s merges ago (FedAsync, Section 5.2).

    `polynomial` is (1 + s)^-a. `hinge` is 1 up to s = b and 1 / (a (s - b) + 1) beyond. `constant` is 1. FedBuff has
    `polynomial` with a = 1/2.
    """

    kind: Annotated[Literal["polynomial", "hinge", "constant"], "how fast late updates lose weight"] = "polynomial"
    a: Annotated[float, "of polynomial and hinge: how much weight late updates lose"] = 0.5
    b: Annotated[int, "of hinge: merges after which an update begins to lose weight"] = 4

    def __post_init__(self) -> None:
        if self.a < 0 or self.b < 0:
            raise ValueError(f"a staleness discount needs a >= 0 and b >= 0, got {self.a} and {self.b}")

    def discount(self, s: float) -> float:
        """Return the share that counts of an update made `s` merges ago."""
        if self.kind == "polynomial":
            return float((1 + s) ** -self.a)
        if self.kind == "hinge" and s > self.b:
            return 1 / (self.a * (s - self.b) + 1)
        return 1.0
