"""What a method, or a part of one, needs of the data of a setting; and the line for a setting that lacks it.

Methods and parts declare their needs by a function `needs()`. Whoever builds a federation asks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class DataFacts:
    """What the data of a setting have, as far as a method may need it."""

    name: str  # the setting's
    public: bool = False  # whether there are public rows
    labelled: bool = False  # whether these have labels
    validation: bool = False
    stream: bool = False  # whether private rows come over time
    task: str = "classification"  # the kind of its task
    label_spaces: str = ""  # which classes each domain has, in words; empty where they are the same for all


class Need(Protocol):
    """One thing that the data must have."""

    def lacks(self, data: DataFacts) -> str | None:
        """Return what is lacking and what to do, to be read behind the method's name; None: nothing is."""
        ...


@runtime_checkable
class Needy(Protocol):
    """A part of a method that has needs."""

    def needs(self, name: str) -> list[Need]:
        """Return what it needs; `name` is its own as an option of the method."""
        ...


@runtime_checkable
class Reads(Protocol):
    """A part of a method that reads a participant's data."""

    def reads(self, name: str) -> Mapping[str, str]:
        """Return the views that it reads, and why; `name` is its own as an option of the method."""
        ...


@dataclass(frozen=True)
class OneLabelSpace:
    """All domains have the same classes."""

    def lacks(self, data: DataFacts) -> str | None:
        return f"needs domains of one label space, but {data.label_spaces}" if data.label_spaces else None


@dataclass(frozen=True)
class Serves:
    """The task is one of these kinds."""

    kinds: tuple[str, ...]

    def lacks(self, data: DataFacts) -> str | None:
        if data.task in self.kinds:
            return None
        return f"serves {' and '.join(self.kinds)}, and {data.name} is {data.task}: take a method that serves any task"


@dataclass(frozen=True)
class PublicData:
    """There are public rows."""

    why: str = "needs public data"

    def lacks(self, data: DataFacts) -> str | None:
        return None if data.public else f"{self.why}; {data.name} has none: set data.public"


@dataclass(frozen=True)
class PublicLabels:
    """There are public rows, and they have labels."""

    instead: str  # the option, and its value, that does without

    def lacks(self, data: DataFacts) -> str | None:
        if data.labelled:
            return None
        hint = f"set {self.instead} or data.public.labelled=true" if data.public else "set data.public"
        return f"trains on public data here, which needs labels; {data.name} has none: {hint}"


@dataclass(frozen=True)
class Validation:
    """There are validation rows."""

    why: str  # the option, and its value, that asks for them

    def lacks(self, data: DataFacts) -> str | None:
        return None if data.validation else f"with {self.why} needs validation data: set data.validation"


@dataclass(frozen=True)
class NoStream:
    """Private rows are all there from the start."""

    why: str
    instead: str = ""  # the option, and its value, that does without

    def lacks(self, data: DataFacts) -> str | None:
        hint = f": set {self.instead}" if self.instead else ""
        return f"{self.why}, but {data.name} has a stream{hint}" if data.stream else None
