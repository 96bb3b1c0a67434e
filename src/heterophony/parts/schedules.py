"""Options that change with the round: ramps, stairs, and either after a warm-up.

In TOML they are tables. `{ start = 0.1, stop = 0.01, over = 30 }` is a ramp; with `kind = "cosine"` it is slow at both
ends. `{ start = 0.1, factor = 0.1, every = 10 }` and `{ start = 0.1, factor = 0.1, at = [10, 20] }` are stairs.
`{ warmup = 5, then = 0.1 }` rises to what comes then, which may be a table too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal

TABLE = (
    "must be a number, or a table such as { start = 0.9, stop = 0.2, over = 10 } (rounds), "
    "{ start = 0.1, factor = 0.1, every = 10 } or { warmup = 5, then = 0.1 }"
)


class _Read:
    """Lets pydantic read a schedule as `read` does, whichever it is, and refuse it in our words."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_checked)


@dataclass(frozen=True)
class Ramp(_Read):
    """A value that goes from `start` to `stop` over so many rounds, and then stays at `stop`.

    It goes in equal steps, or along half a wave of a cosine, which is slow at both ends.
    """

    start: Annotated[float, "value in the first round"]
    stop: Annotated[float, "value from round `over` on"]
    over: Annotated[int, "rounds from `start` to `stop`"]
    kind: Annotated[Literal["linear", "cosine"], "equal steps, or slow at both ends"] = "linear"

    def __post_init__(self) -> None:
        _check_number("a ramp's start", self.start)
        _check_number("a ramp's stop", self.stop)
        if not _whole(self.over) or self.over < 1:
            raise ValueError(f"a ramp goes over at least one round, got {self.over}")
        if self.kind not in ("linear", "cosine"):
            raise ValueError(f"a ramp's kind is linear or cosine, got {self.kind}")

    def value(self, round: int) -> float:
        """Return the value in a round."""
        passed = min(round / self.over, 1.0)
        if self.kind == "cosine":
            passed = (1 - math.cos(math.pi * passed)) / 2
        return self.start + (self.stop - self.start) * passed

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the values between which it stays."""
        return self.start, self.stop


@dataclass(frozen=True)
class Stairs(_Read):
    """A value that is multiplied by `factor` at each step: every so many rounds, or where `at` lists them."""

    start: Annotated[float, "value in the first round"]
    factor: Annotated[float, "what it is multiplied by at a step"]
    every: Annotated[int | None, "rounds from one step to the next"] = None
    at: Annotated[tuple[int, ...] | None, "after how many rounds it steps, one number a step"] = None

    def __post_init__(self) -> None:
        _check_number("the start of stairs", self.start)
        _check_number("the factor of stairs", self.factor)
        if self.factor < 0:
            raise ValueError(f"the factor of stairs is at least 0, got {self.factor}")
        if (self.every is None) == (self.at is None):
            raise ValueError("stairs have either every (rounds) or at (a list of rounds)")
        rounds: Any
        for rounds in (self.every,) if self.at is None else self.at:
            if not _whole(rounds) or rounds < 1:
                raise ValueError(f"stairs step after at least one round, got {rounds}")

    def value(self, round: int) -> float:
        """Return the value in a round."""
        steps = round // self.every if self.every else sum(round >= step for step in self.at or ())
        return float(self.start * self.factor**steps)

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the values between which it stays. Without an end they go on to 0, or beyond all bounds."""
        if self.at is not None:
            return self.start, float(self.start * self.factor ** len(self.at))
        if self.factor == 1 or not self.start:
            return (self.start,)
        return self.start, 0.0 if self.factor < 1 else math.copysign(math.inf, self.start)


@dataclass(frozen=True)
class Warmup(_Read):
    """A value that rises in equal steps for so many rounds. The next round is the first one of what comes `then`.

    In round r of w it is (r + 1) / (w + 1) of the value with which `then` begins.
    """

    warmup: Annotated[int, "rounds in which the value rises"]
    then: Annotated[Ramp | Stairs | float, "what it rises to: a number, a ramp or stairs"]

    def __post_init__(self) -> None:
        if not _whole(self.warmup) or self.warmup < 1:
            raise ValueError(f"a warm-up takes at least one round, got {self.warmup}")
        if not isinstance(self.then, Ramp | Stairs):
            _check_number("what comes after a warm-up", self.then)

    def value(self, round: int) -> float:
        """Return the value in a round."""
        if round >= self.warmup:
            return at(self.then, round - self.warmup)
        return at(self.then, 0) * (round + 1) / (self.warmup + 1)

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the values between which it stays."""
        return at(self.then, 0) / (self.warmup + 1), *ends(self.then)


Schedule = Ramp | Stairs | Warmup
Scheduled = Ramp | Stairs | Warmup | float  # of a value that is none of them, the refusal is that of the first


def ends(value: Scheduled) -> tuple[float, ...]:
    """Return the values between which it stays."""
    return value.ends if isinstance(value, Schedule) else (value,)


def at(value: Scheduled, round: int) -> float:
    """Return the value in a round."""
    return value.value(round) if isinstance(value, Schedule) else value


def read_by_node(value: Any) -> Any:
    """Read an option that may be a number, a schedule as a table, or a table by node with either for each."""
    if not isinstance(value, Mapping):
        return value
    if value.keys() <= WORDS:  # an empty one too, which is refused
        return read(value)
    return {node: read_by_node(own) for node, own in value.items()}


def read(table: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a table as TOML has it. Which one it is follows from its keys."""
    if not table or not table.keys() <= WORDS:
        raise ValueError(TABLE)
    made: type[Schedule] = Ramp
    if table.keys() & {"warmup", "then"}:
        made = Warmup
    elif table.keys() & {"factor", "every", "at"}:
        made = Stairs
    known = {field.name: field.default is MISSING for field in fields(made)}
    missing = [key for key, needed in known.items() if needed and key not in table]
    strange = [key for key in table if key not in known]
    if missing or strange:
        name = {Ramp: "a ramp has", Stairs: "stairs have", Warmup: "a warm-up has"}[made]
        wrong = f"{missing[0]} is missing" if missing else f"got {strange[0]}"
        raise ValueError(f"{name} {', '.join(known)}; {wrong}")
    return made(**{key: _own(value) for key, value in table.items()})


def _own(value: Any) -> Any:
    """Return a value of a table as a schedule has it. Whoever checks tables of numbers makes floats of whole ones."""
    if isinstance(value, list | tuple):
        return tuple(_own(item) for item in value)
    if isinstance(value, Mapping):
        return read(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _checked(value: Any) -> Schedule:
    """Return a schedule for pydantic; refuse in words of our own."""
    from pydantic_core import PydanticCustomError

    try:
        if isinstance(value, Schedule):
            return value
        if isinstance(value, Mapping) and value.keys() <= WORDS:
            return read(value)
    except ValueError as error:
        raise PydanticCustomError("schedule", "{said}", {"said": str(error)}) from None
    raise PydanticCustomError("no_schedule", "{said}", {"said": TABLE}) from None


def _check_number(what: str, value: Any) -> None:
    """Raise unless a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{what} is a number, got {value}")


def _whole(value: Any) -> bool:
    """Return whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


WORDS = frozenset(field.name for made in (Ramp, Stairs, Warmup) for field in fields(made))
