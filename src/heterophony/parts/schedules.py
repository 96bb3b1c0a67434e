"""Options that change with the round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

TABLE = "must be a number, or a table such as { start = 0.9, stop = 0.2, over = 10 } (rounds)"


@dataclass(frozen=True)
class Ramp:
    """A value that goes from `start` to `stop` in equal steps over so many rounds, and then stays at `stop`."""

    start: Annotated[float, "value in the first round"]
    stop: Annotated[float, "value from round `over` on"]
    over: Annotated[int, "rounds from `start` to `stop`"]

    def __post_init__(self) -> None:
        if self.over < 1:
            raise ValueError(f"a ramp goes over at least one round, got {self.over}")

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(_checked, handler(source))


def _checked(value: Any, check: Any) -> Any:
    """Return what pydantic makes of a value in a setting; refuse in words of our own."""
    from pydantic_core import PydanticCustomError, ValidationError

    try:
        return check(value)
    except ValidationError as error:
        first = error.errors()[0]
        own = first["type"] == "value_error"  # a refusal of `Ramp` itself
        raise PydanticCustomError("ramp", str(first["ctx"]["error"]) if own else TABLE) from None


Scheduled = Ramp | float  # in this order: of a value that is neither, the refusal is that of the first


def ends(value: Scheduled) -> tuple[float, ...]:
    """Return the values between which it stays."""
    return (value.start, value.stop) if isinstance(value, Ramp) else (value,)


def at(value: Scheduled, round: int) -> float:
    """Return the value in a round."""
    if isinstance(value, Ramp):
        passed = min(round / value.over, 1.0)
        return value.start + (value.stop - value.start) * passed
    return value
