"""How what several nodes sent becomes one: the plain mean, or a rule that some liars among them cannot move far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from heterophony.kernel.fields import LARGEST
from heterophony.kernel.work import Named
from heterophony.parts import robust
from heterophony.parts.aggregate import mean

Rule = Literal[
    "mean",
    "median",
    "trimmed",
    "krum",
    "multi-krum",
    "geometric-median",
    "centred-clipping",
    "norm-clipping",
    "filter",
    "trust",
]
COUNTING = ("trimmed", "krum", "multi-krum")  # rules that go by a number of liars
CLIPPING = ("centred-clipping", "norm-clipping")
TRUST = "trust"  # goes by what the node itself learns from public rows
USUAL_LIARS = 0.3
TABLE = 'a table such as { rule = "krum", liars = 2 }'
LIARS = "of trimmed, krum, multi-krum and with mix: how many liars there may be, a count or a share; none: three in ten"
RADIUS = "of the clippings: how far one may go from the start; none: the median of the distances"


class Combined(NamedTuple):
    """What a rule made, and how much of each item went in: a share of one, or None where no share says it."""

    value: Tensor
    counted: list[float] | None


@dataclass(frozen=True)
class Combine:
    """A rule by which items become one. An item is all that a message's field holds, as one vector.

    Only `mean` counts items by examples: a liar may say any number of them. Under all other rules, all count alike.
    Of fewer than three items, each rule takes the coordinates' median, which is then the mean.
    """

    rule: Annotated[Rule, "how what came is combined"] = "mean"
    liars: Annotated[int | float | None, LIARS] = None
    radius: Annotated[float | None, RADIUS] = None
    steps: Annotated[int, "of centred clipping"] = 3
    sigma: Annotated[float, "of the filter: the largest standard deviation of honest items, row by row"] = 0.1
    mix: Annotated[bool, "each item is first replaced by the mean of those nearest to it (NNM)"] = False
    doubt: Annotated[float, "whose item is so many times as far from the result as the middle one is doubted"] = 3.0

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"combine: rule is one of {', '.join(RULES)}, got {self.rule!r}")
        self._check_liars()
        if self.radius is not None and not 0 < self.radius < math.inf:
            raise ValueError(f"combine: radius is a number > 0, got {self.radius}")
        if self.steps < 1 or not self.sigma > 0 or not self.doubt > 1:
            given = f"{self.steps}, {self.sigma} and {self.doubt}"
            raise ValueError(f"combine: steps is at least 1, sigma a number > 0 and doubt one > 1, got {given}")
        self._check_used("liars", self.rule in COUNTING or self.mix)
        self._check_used("radius", self.rule in CLIPPING)
        self._check_used("steps", self.rule == "centred-clipping")
        self._check_used("sigma", self.rule == "filter")
        self._check_used("mix", self.rule != TRUST)  # means of steps are shorter: to make them longer adds noise

    def _check_liars(self) -> None:
        count = isinstance(self.liars, int) and not isinstance(self.liars, bool) and self.liars >= 0
        share = isinstance(self.liars, float) and 0 <= self.liars < 0.5
        if self.liars is not None and not count and not share:
            raise ValueError(f"combine: liars is a count >= 0 or a share in [0, 0.5), got {self.liars}")

    def _check_used(self, name: str, used: bool) -> None:
        if not used and getattr(self, name) != getattr(type(self), name):
            raise ValueError(f"combine: {self.rule} does not use {name}, got {getattr(self, name)}")

    def __str__(self) -> str:
        """Return it as TOML has it: the rule alone where nothing else is set."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if not own.keys() - {"rule"}:
            return self.rule
        told = {"rule": self.rule, **own}
        return "{ " + ", ".join(f"{key} = {_toml(value)}" for key, value in told.items()) + " }"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic read a rule as `read` does, and refuse it in our words."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_checked)

    @property
    def plain(self) -> bool:
        """Return whether it is the mean and nothing else."""
        return self.rule == "mean" and not self.mix

    def expected(self, count: int) -> int:
        """Return how many liars it reckons with among so many items."""
        liars = USUAL_LIARS if self.liars is None else self.liars
        if isinstance(liars, int):
            return liars
        return max(1, int(liars * count + 1e-9)) if liars and count >= 3 else 0

    def least(self, liars: int) -> int:
        """Return of how many items a rule can bear so many liars."""
        if self.rule in ("krum", "multi-krum"):
            return 2 * liars + 3
        return 2 * liars + 1 if self.rule == "trimmed" or self.mix else 1

    def lacks(self, count: int) -> str:
        """Return why so many items are too few; empty if they are not, or where everyone may be honest."""
        liars = self.expected(count)
        least = self.least(liars)
        if self.plain or count >= least:
            return ""
        mix = " with mix" if self.mix else ""
        return f"{self.rule}{mix} bears {liars} liars among {least} or more"

    def borne(self, count: int) -> int:
        """Return how many liars it reckons with here: fewer than it should where too few have answered."""
        return next((f for f in range(self.expected(count), 0, -1) if self.least(f) <= count), 0)

    # -- what it makes ---------------------------------------------------------------------------------------------
    def of(self, items: Sequence[Tensor], draw: torch.Generator, start: Tensor | None = None) -> Combined:
        """Combine tensors of one shape. `start` is where clippings begin; without one, at the median."""
        if not items:
            raise ValueError("nothing to combine: a skipped round brings no mail, so test `if mail` first")
        stacked = torch.stack([item.float() for item in items])
        if self.plain:
            return Combined(stacked.mean(0), None)
        n = len(stacked)
        points = stacked.reshape(n, -1).nan_to_num().clamp(-LARGEST, LARGEST)  # a method may have scaled what came
        if self.mix and n >= 3:
            points = robust.mixed(points, self.borne(n))
        if self.rule == "filter":
            matrices = points.reshape(n, *(stacked.shape[1:] if stacked.dim() > 2 else (1, -1)))
            value, kept = robust.kept_by_filter(list(matrices.cpu()), self.sigma, draw)
            return Combined(value.reshape(stacked.shape[1:]).to(stacked.device), kept.double().mean(0).tolist())
        if self.rule == TRUST:
            raise ValueError("combine: trust is for weights alone")
        at = None if start is None else start.reshape(-1).to(points)
        value, counted = self._made(points, at)
        return Combined(value.reshape(stacked.shape[1:]), counted)

    def _made(self, points: Tensor, start: Tensor | None) -> Combined:
        """Apply the rule to points, one a row."""
        n = len(points)
        if self.rule == "mean":
            return Combined(points.mean(0), None)
        if n < 3 or self.rule == "median":
            return Combined(robust.median(points), None)
        if self.rule == "trimmed":
            return Combined(robust.trimmed(points, self.borne(n)), None)
        if self.rule == "geometric-median":
            return Combined(robust.geometric_median(points), None)
        if self.rule in CLIPPING:
            return self._clipped(points, robust.median(points) if start is None else start)
        liars = self.borne(n)
        chosen = robust.chosen(points, liars, 1 if self.rule == "krum" else n - liars)
        return Combined(points[chosen].mean(0), [float(i in chosen) for i in range(n)])

    def _clipped(self, points: Tensor, start: Tensor) -> Combined:
        """Apply one of the two clippings."""
        if self.rule == "centred-clipping":
            value = robust.centred_clipping(points, start, self.radius, self.steps)
        else:
            value = robust.clipped(points, start, self.radius)[0].mean(0).to(points)
        return Combined(value, robust.clipped(points, value, self.radius)[1].tolist())

    def _trusting(self, items: Sequence[Tensor], start: Tensor, own: Tensor) -> Combined:
        """Apply the rule that goes by the node's own step from the start."""
        points = torch.stack(list(items)).nan_to_num().clamp(-LARGEST, LARGEST)
        step, trust = robust.trusting(points.double() - start.double(), own.double() - start.double())
        return Combined((start.double() + step).to(points), trust.tolist())

    def named(
        self,
        items: Sequence[Named],
        shares: Sequence[float] | None,
        draw: torch.Generator,
        start: Named | None = None,
        trusted: Named | None = None,
    ) -> tuple[dict[str, Tensor], list[float] | None]:
        """Combine named tensors: all tensors of an item are one vector. Only the plain mean counts by `shares`.

        `trusted` is what the node itself made of `start`.
        """
        if self.plain or not items:
            return mean(items, shares), None
        first, vectors = items[0], [flat(item) for item in items]
        begin = None if start is None or not start.keys() >= first.keys() else flat(start, first)
        if self.rule == TRUST:
            if begin is None or trusted is None:
                raise ValueError("combine: trust needs what the node itself has learnt from public rows")
            found = self._trusting(vectors, begin, flat(trusted, first))
        else:
            found = self.of(vectors, draw, begin)
        return parted(found.value, first), found.counted

    def doubted(self, items: Sequence[Tensor], result: Tensor) -> list[float | None]:
        """Return for each item how many times as far from the result it is as the middle one; None: not too far.

        Of less than three items nobody can say which is the odd one.
        """
        if self.plain or len(items) < 3:
            return [None] * len(items)
        far = torch.stack([(item.double() - result.double()).norm() for item in items])
        middle = far.sort().values[(len(items) - 1) // 2]
        least = max(float(middle), 1e-6 * float(result.double().norm()), 1e-30)
        return [ratio if ratio > self.doubt else None for ratio in (far / least).tolist()]


def flat(named: Named, names: Named | None = None) -> Tensor:
    """Return named tensors as one vector, in the order of `names`."""
    return torch.cat([named[name].detach().reshape(-1).float() for name in (named if names is None else names)])


def parted(vector: Tensor, like: Named) -> dict[str, Tensor]:
    """Return a vector as named tensors with the names, shapes and types of `like`: the way back from `flat`."""
    parts = torch.split(vector, [tensor.numel() for tensor in like.values()])
    return {name: part.reshape(own.shape).to(own) for (name, own), part in zip(like.items(), parts, strict=True)}


def rules_of(value: Any) -> Any:
    """Return the rules that an option is told: by name, as a table, or as a table by node with either for each."""
    if isinstance(value, Mapping) and not value.keys() & set(WORDS):
        return {node: read(own) for node, own in value.items()}
    return None if value is None else read(value)


def read(value: Any) -> Combine:
    """Return the rule of a name, or of a table."""
    if isinstance(value, Combine):
        return value
    if isinstance(value, str):
        return Combine(value)  # type: ignore[arg-type]
    if not isinstance(value, Mapping):
        raise ValueError(f"combine is a rule ({', '.join(RULES)}) or {TABLE}, got {value!r:.40}")
    if strange := sorted(value.keys() - set(WORDS)):
        raise ValueError(f"combine: a table has {', '.join(WORDS)}, got {strange[0]}")
    if isinstance(value.get("rule"), Combine):  # read already, as one of a table by node
        return read(value["rule"])
    return Combine(**value)


def _checked(value: Any) -> Combine:
    """Return a rule for pydantic."""
    from pydantic_core import PydanticCustomError

    try:
        return read(value)
    except (TypeError, ValueError) as error:
        raise PydanticCustomError("schedule", "{said}", {"said": str(error)}) from None


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


RULES: tuple[str, ...] = Rule.__args__  # type: ignore[attr-defined]
WORDS = tuple(field.name for field in fields(Combine))
