"""How sums are masked: what all members of a federation agree upon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from heterophony.kernel.by_level import ByLevel, values

FEWEST = 3  # with two members, each could take its own from the sum
COARSEST = 2.0**-10  # the largest step of values, in a cohort of a thousand
THOUSAND = 1000


@dataclass(frozen=True)
class Secure:
    """A server learns the sum of what its children send, and nothing of any one of them.

    Values become whole numbers: each is multiplied by its weight and by a power of two, and rounded. Sums are taken
    modulo 2^bits, and are exact. The means that come out differ from the true ones by at most `step`.
    """

    least: Annotated[int, "the fewest members of a sum, at least 3"] = 3
    threshold: Annotated[float, "more than this share of a neighbourhood opens a sum; from 0.5"] = 0.5
    neighbours: Annotated[int | None, "with how many each shares masks; none: with all, of many with some"] = None
    bits: Annotated[int, "of a masked number: 32 or 64"] = 64
    range: Annotated[float, "the largest value; what is beyond is cut off, counted and noted"] = 1024.0
    most: Annotated[int, "the most that one member may count, as examples"] = 2**20
    wait: Annotated[ByLevel[float] | None, "virtual seconds of each of the protocol's own windows"] = None
    at: Annotated[tuple[str, ...], "the roles that get sums instead of messages; none named: all that merge"] = ()

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.least < FEWEST:
            raise ValueError(f"secure.least is at least {FEWEST}, got {self.least}: of two, each knows the other's")
        if not 0.5 <= self.threshold < 1:
            raise ValueError(f"secure.threshold is a share from 0.5 to below 1, got {self.threshold}")
        if self.neighbours is not None and self.neighbours < FEWEST - 1:
            raise ValueError(f"secure.neighbours is a number >= {FEWEST - 1}, got {self.neighbours}")
        if self.bits not in (32, 64):
            raise ValueError(f"secure.bits is 32 or 64, got {self.bits}")
        if not 0 < self.range < math.inf or self.most < 1:
            raise ValueError(f"secure.range is a number > 0 and most one >= 1, got {self.range} and {self.most}")
        for wait in values(self.wait) if self.wait is not None else ():
            if not wait > 0:
                raise ValueError(f"secure.wait is a number of virtual seconds > 0, got {wait}")

    def check(self, weighted: bool) -> None:
        """Raise where so few bits leave steps that are too coarse for a network's weights."""
        step = 1 / self.scale(THOUSAND, weighted)
        if step > COARSEST:
            most = " and secure.most" if weighted else ""
            raise ValueError(
                f"secure.bits = {self.bits} leaves steps of {step:.2g} in a cohort of {THOUSAND}: lower secure.range"
                f"{most}, or take 64"
            )

    def scale(self, members: int, weighted: bool) -> float:
        """Return by how much values are multiplied, so that the sum of so many members stays below 2^(bits - 1)."""
        largest = self.range * (self.most if weighted else 1) * members
        return 2.0 ** math.floor(math.log2(2.0 ** (self.bits - 2) / largest))

    def step(self, members: int, weighted: bool, counted: float = 1.0) -> float:
        """Return by how much a mean may differ from the true one, of members that count so much on average."""
        return 0.5 / (self.scale(members, weighted) * (counted if weighted else 1.0))

    def degree(self, members: int) -> int:
        """Return with how many others each of so many members shares masks: an even number, or all."""
        wanted = 4 * math.ceil(math.log2(max(2, members))) if self.neighbours is None else self.neighbours
        return members - 1 if wanted >= members - 1 else wanted + wanted % 2

    def needed(self, neighbourhood: int) -> int:
        """Return how many of a neighbourhood, the member itself among them, can open what it has shared."""
        return math.floor(self.threshold * neighbourhood + 1e-9) + 1


def secure_of(given: Secure | Mapping[str, Any] | bool | None) -> Secure | None:
    """Return how sums are masked as a user says it: a table, or true for the usual; None: they are not."""
    if given is None or isinstance(given, Secure):
        return given
    if isinstance(given, Mapping):
        return Secure(**given)
    return Secure() if given else None
