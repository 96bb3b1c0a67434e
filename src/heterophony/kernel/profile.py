"""What a participant's device and network are like, in virtual seconds; and who drops out."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from heterophony.base.seeds import derive


@dataclass(frozen=True)
class Profile:
    """Speed, network and availability of one node.

    `available` lists the spans (from, to) in which the node is there: mail reaches and leaves it, reactions fire.
    Without spans it is always there. A node that goes away finishes what it has begun, and sends when it is back. After
    the last span it is gone for good.
    """

    seconds_per_sample: float = 1e-3
    bandwidth: float = math.inf  # bytes a second
    latency: float = 0.0
    available: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.seconds_per_sample >= 0 or not self.latency >= 0 or not self.bandwidth > 0:
            raise ValueError(f"a device profile needs times >= 0 and a bandwidth > 0, got {self}")
        edges = [edge for span in self.available for edge in span]
        if edges != sorted(edges):
            raise ValueError(f"availability spans must be in order and apart, got {self.available}")

    def next_available(self, time: float) -> float:
        """Return the first moment from `time` on at which the node can be reached; infinity if never."""
        if not self.available:
            return time
        for start, end in self.available:
            if time < end:
                return max(time, start)
        return math.inf


def hop(a: Profile, b: Profile, size: int) -> float:
    """Return the seconds that a message of this size takes from one node to the next."""
    return a.latency + b.latency + size / min(a.bandwidth, b.bandwidth)


@dataclass(frozen=True)
class Dropout:
    """Who takes no part in a round: mail of that round, to and from them, is lost and counts as "absent".

    `rate` picks at random, anew each round. Those in `always` are too weak to take part in any. Nodes with children
    count rounds of their own and never drop out: give those an availability.
    """

    rate: float = 0.0
    always: Collection[str] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1 or isinstance(self.always, str):
            raise ValueError(f"a dropout needs a rate in [0, 1] and a list of node ids, got {self}")

    @property
    def never(self) -> bool:
        """Return whether nobody drops out."""
        return not self.rate and not self.always

    def out(self, seed: int, node: str, round: int) -> bool:
        """Return whether a node takes no part in a round."""
        if node in self.always:
            return True
        return self.rate > 0 and derive(seed, node, round, "dropout") / 2**63 < self.rate
