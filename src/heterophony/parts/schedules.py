"""Hyper-parameters that change with the round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ramp:
    """From `start` to `stop` in equal steps over that many rounds, then `stop`."""

    start: float
    stop: float
    over: int

    def __post_init__(self) -> None:
        if self.over < 1:
            raise ValueError(f"a ramp goes over at least one round, got {self.over}")


Scheduled = float | Ramp


def ends(value: Scheduled) -> tuple[float, ...]:
    """The least and the most that it becomes."""
    return (value.start, value.stop) if isinstance(value, Ramp) else (value,)


def at(value: Scheduled, round: int) -> float:
    """The value in a round."""
    if isinstance(value, Ramp):
        return value.start + (value.stop - value.start) * min(round / value.over, 1.0)
    return value
