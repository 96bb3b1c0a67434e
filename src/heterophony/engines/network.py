"""How long mail takes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from heterophony.federation import Federation
from heterophony.kernel.message import Message
from heterophony.kernel.profile import hop

LEAST = 5_000


class Network:
    """Latency and bandwidth along a message's path, availability at its ends. Mail on an edge does not overtake.

    A test can lose or repeat mail by another `arrivals`.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.last: dict[tuple[str, str], float] = {}  # the latest arrival on an edge
        self.known = LEAST  # edges after the last look for those whose mail has arrived

    def arrivals(self, message: Message, path: tuple[str, ...], size: int, departure: float) -> list[float]:
        """Return the moments at which the receiver gets it: one, or none if an end is gone for good."""
        profiles = list(map(self.federation.profile, path))
        moment = profiles[0].next_available(departure)
        for a, b in pairwise(profiles):
            moment += hop(a, b, size)
        moment = profiles[-1].next_available(moment)
        if not math.isfinite(moment):
            return []
        edge = message.sender, message.receiver
        self.last[edge] = max(moment, self.last.get(edge, 0.0))
        return [self.last[edge]]

    def forget(self, now: float) -> None:
        """Forget edges whose mail has arrived: what leaves from now on comes later. A snapshot does so, too."""
        if len(self.last) >= 2 * self.known:
            self.last = {edge: moment for edge, moment in self.last.items() if moment > now}
            self.known = max(LEAST, len(self.last))

    def state(self, now: float) -> list[Any]:
        return [(*edge, moment) for edge, moment in sorted(self.last.items()) if moment > now]

    def restore(self, state: list[Any]) -> None:
        self.last = {(a, b): moment for a, b, moment in state}
