"""Scores: figures that are made of sums, and these add up over test sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ScoreSum = tuple[float | None, int]  # a sum, None where it is not finite, and the number of what was summed
Sums = dict[str, ScoreSum]  # by quantity; a row of the evaluation table each
Pairs = Sequence[tuple[float, float]]  # the sums of one score and their numbers, in its order


_HUGE = 1e7  # from here on a figure is written as 1.23e+07


def quotient(pairs: Pairs) -> float:
    """Return the mean: one sum by its number."""
    ((total, n),) = pairs
    return total / n if n else math.nan


@dataclass(frozen=True)
class Score:
    """A figure of a model on one or several test sets.

    It is computed from sums. Those of several sets are added before `final` makes one figure of them.

    Arguments:
        name: what files and options call it.
        sums: the quantities of the evaluation table that it needs.
        final: makes the figure of the added sums; NaN where it is undefined.
        title: what a person reads; the name if not given.
        higher: whether more is better.
        percent: whether it is a share, which is shown in per cent.
    """

    name: str
    sums: tuple[str, ...] = ()
    final: Callable[[Pairs], float] = quotient
    title: str = ""
    higher: bool = True
    percent: bool = True

    @property
    def quantities(self) -> tuple[str, ...]:
        """The quantities that it needs: by default one of its own name."""
        return self.sums or (self.name,)

    @property
    def label(self) -> str:
        """What a person reads."""
        return self.title or self.name

    @property
    def axis(self) -> str:
        """What stands beside the axis of a figure."""
        return f"{self.label} (%)" if self.percent else self.label

    @property
    def scale(self) -> int:
        """By what figures are multiplied where they are shown."""
        return 100 if self.percent else 1

    @property
    def digits(self) -> int:
        """How many digits stand behind the point where figures are shown."""
        return 1 if self.percent else 3

    @property
    def unit(self) -> str:
        return " %" if self.percent else ""

    def figure(self, pairs: Pairs) -> float | None:
        """Return the figure of added sums; None where it is undefined."""
        value = self.final(pairs)
        return value if math.isfinite(value) else None

    def of(self, sums: Mapping[str, ScoreSum]) -> float | None:
        """Return the figure on one set; None where a sum is undefined."""
        pairs = []
        for name in self.quantities:
            total, n = sums.get(name, (0.0, 0))
            if total is None:
                return None
            pairs.append((total, n))
        return self.figure(pairs)

    def text(self, value: float | None) -> str:
        """Return a figure as tables show it: "12.3 %", "0.123", or "1.23e+07", and "-" where there is none."""
        if value is None:
            return "-"
        if abs(value) >= _HUGE:
            return f"{self.scale * value:.3g}{self.unit}"
        return f"{self.scale * value:.{self.digits}f}{self.unit}"

    def better(self, a: float, b: float) -> bool:
        """Tell whether the figure `a` is better than `b`."""
        return a > b if self.higher else a < b


ACCURACY = Score("accuracy")


def finite(total: float) -> float | None:
    """Return a sum; None where it is not finite."""
    return total if math.isfinite(total) else None
