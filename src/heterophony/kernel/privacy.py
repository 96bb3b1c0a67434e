"""What a node's owner says of privacy: how what leaves is clipped and noised, and how much may be told in all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from heterophony.kernel.by_level import ByLevel, values
from heterophony.kernel.fields import Counts, Features, Labels, LowRank, PerClass, Rows, Scalar, TensorField, Weights
from heterophony.kernel.message import Kind

HEADCOUNT = "examples"  # the number that weighs a mean: sent as one, unless it has a clip of its own


class Charge(NamedTuple):
    """What a release costs: a Gaussian mechanism, so many `times`, each on rows that are drawn with probability `rate`.

    `multiplier` is the noise's deviation in units of what one replaced data set (or, with a rate below one, one row
    more or less) can change.
    """

    label: str
    multiplier: float
    rate: float = 1.0
    times: int = 1


@dataclass(frozen=True)
class Privacy:
    """Clip and noise at a node's door, and the most that may ever be told.

    Each field of a protected message is clipped to the length `clip`, as a whole; then Gaussian noise of deviation
    `noise * clip` is added to each of its numbers. Weights are clipped as the difference from what was received. What
    is protected is all data of the node: whether they are these or any others, what leaves is nearly as likely. A
    replaced data set moves a clipped value by up to twice the clip; the accountant counts so.

    Arguments:
        clip: a length for all fields of tensors, or one for each field, by name.
        noise: the deviation of the noise, as a multiple of the clip.
        delta: of (epsilon, delta)-differential privacy.
        budget: the most epsilon that all that ever leaves may add up to.
        kinds: the kinds of message that are protected; None: all that the node may send. With none of them, the budget
            is that of private training alone, and there is no clip.
        central: the node is trusted: it clips what its children send, and adds noise once, to their mean.
        large_delta: whether a delta of one over the number of rows, or more, is meant.
    """

    clip: float | Mapping[str, float] | None = None
    noise: float | None = None
    delta: float | None = None
    budget: float | None = None
    kinds: tuple[str, ...] | None = None
    central: bool = False
    large_delta: bool = False

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.kinds == ():
            if self.clip is not None or self.noise is not None or self.central:
                raise ValueError("privacy: no kind is protected: leave out clip, noise and central, which say nothing")
        else:
            self._check_noise()
        if self.delta is None or not 0 < self.delta < 1:
            raise ValueError(f"privacy: delta is a number between 0 and 1, got {self.delta}")
        if self.budget is None or not 0 < self.budget < math.inf:
            raise ValueError(f"privacy: budget is the most epsilon in all, a number > 0, got {self.budget}")

    def _check_noise(self) -> None:
        if self.clip is None or self.clip == {}:
            raise ValueError("privacy: clip is missing: the longest that a message's values may be")
        for clip in self.clip.values() if isinstance(self.clip, Mapping) else (self.clip,):
            if not 0 < clip < math.inf:
                raise ValueError(f"privacy: clip is a length > 0, got {clip}")
        if self.noise is None or not 0 < self.noise < math.inf:
            raise ValueError(f"privacy: noise is a multiple of the clip > 0, got {self.noise}")

    def protects(self, kind: str) -> bool:
        """Return whether messages of a kind are clipped and noised."""
        return self.kinds is None or kind in self.kinds

    def longest(self, field: str) -> float | None:
        """Return the clip of a field; None where nothing is said of it."""
        return self.clip.get(field) if isinstance(self.clip, Mapping) else self.clip

    def noised(self, kind: Kind) -> dict[str, float]:
        """Return the fields of a kind that get noise, with their clips. Raise where one would leave as it is."""
        found = {}
        for name, field in kind.fields.items():
            if isinstance(field, Rows):
                continue  # numbers of rows that all hold: they tell which were drawn, and nothing of private ones
            scalar, tensor = isinstance(field, Scalar), isinstance(field, Weights | TensorField)
            tensor = tensor and not isinstance(field, LowRank)  # how many columns factors have tells of the rows
            clip = self.longest(name)
            if scalar and not isinstance(self.clip, Mapping):
                clip = None  # one length for tensors is no range of a number
            if clip is not None and (scalar or tensor):
                found[name] = clip
            elif not (scalar and name == HEADCOUNT):
                hint = f"say clip = {{ {name} = ... }}, or leave the kind out of kinds"
                if not scalar and not tensor:
                    hint = "leave the kind out of kinds: nothing here knows noise for it"
                raise ValueError(f"privacy: {name} of {kind.name!r} has no clip of its own: {hint}")
        return found

    def charge(self, kind: Kind) -> Charge | None:
        """Return what a message of a kind costs; None for one that has nothing in it."""
        fields = len(self.noised(kind))
        if not fields:
            return None
        assert self.noise is not None
        # Twice the clip is what a replaced data set moves a field by; several fields are one mechanism together.
        return Charge(kind.name, self.noise / (2 * math.sqrt(fields)))


@dataclass(frozen=True)
class PrivateSteps:
    """Training steps that are private for each row (DP-SGD).

    Each row's gradient is clipped to the length `clip`; then noise of deviation `noise * clip` is added to their sum.
    `noise` may differ from node to node.
    """

    clip: float | None = None
    noise: ByLevel[float] | None = None

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.clip is None or not 0 < self.clip < math.inf:
            raise ValueError(f"private: clip is the longest gradient of a row, a number > 0, got {self.clip}")
        if self.noise is None or not all(0 < noise < math.inf for noise in values(self.noise)):
            raise ValueError(f"private: noise is a multiple of the clip > 0, got {self.noise}")


def told_raw(kinds: Collection[Kind]) -> Iterator[tuple[str, str]]:
    """Yield kinds and their fields that tell of private rows beside what a network has learnt of them."""
    for kind in kinds:
        for name, field in kind.fields.items():
            if isinstance(field, PerClass | Counts | Features | Labels) or (
                isinstance(field, Scalar) and name != HEADCOUNT
            ):
                yield kind.name, name


def has_anchor(field: object) -> bool:
    """Return whether values of a field are clipped as the difference from what was received under its name."""
    return isinstance(field, Weights) and not field.change
