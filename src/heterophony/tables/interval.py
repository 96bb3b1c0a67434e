"""Means over seeds: Student's intervals, the interval of one more run, paired tests with Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ROUNDING = 1e-9  # differences that differ by less are the same
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over n seeds. `half` is half of its 95 % interval, `reach` half of the one for a single further run;
    both are None where one seed says nothing of the spread."""

    mean: float
    half: float | None
    reach: float | None
    n: int

    def text(self, scale: float = 100.0, digits: int = 1) -> str:
        half = "" if self.half is None else f" ± {scale * self.half:.{digits}f}"
        return f"{scale * self.mean:.{digits}f}{half}"


def mean(values: Iterable[float | None]) -> float | None:
    """Return the plain mean; None where a value is None, or there are no values."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def interval(values: Sequence[float | None]) -> Interval | None:
    """Return the interval of figures by seed; None where one is undefined, or there are none."""
    known = [value for value in values if value is not None]
    n = len(known)
    if not n or n < len(values):
        return None
    mean = math.fsum(known) / n
    if n == 1:
        return Interval(mean, None, None, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1))
    t = quantile((1 + LEVEL) / 2, n - 1)
    return Interval(mean, t * deviation / math.sqrt(n), t * deviation * math.sqrt(1 + 1 / n), n)


def paired(ours: Mapping[int, float], others: Mapping[int, float]) -> float | None:
    """Return the two-sided p of Student's paired test, over the seeds that both have.

    It is None with fewer than two seeds, or where all differences are the same: they do not say how they vary.
    """
    seeds = sorted(ours.keys() & others.keys())
    differences = [ours[seed] - others[seed] for seed in seeds]
    n = len(differences)
    if n < 2:
        return None
    mean = math.fsum(differences) / n
    variance = math.fsum((value - mean) ** 2 for value in differences) / (n - 1)
    if variance <= (ROUNDING * max(map(abs, differences))) ** 2:
        return 1.0 if mean == 0 else None
    t = mean / math.sqrt(variance / n)
    return 2 * cdf(-abs(t), n - 1)


def holm(ps: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return the same p, corrected for how many there are (Holm, 1979)."""
    known = sorted((p, name) for name, p in ps.items() if p is not None)
    found: dict[str, float | None] = dict.fromkeys(ps)
    highest = 0.0
    for place, (p, name) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - place) * p))
        found[name] = highest
    return found


# -- Student's distribution, so that a table needs no further package -------------------------------------------
def cdf(t: float, freedom: int) -> float:
    """Return P(T <= t) for Student's T."""
    tail = 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return 1 - tail if t > 0 else tail


def quantile(p: float, freedom: int) -> float:
    """Return the t with P(T <= t) = p, for p >= 1/2."""
    low, high = 0.0, 1.0
    while cdf(high, freedom) < p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror image does not
        return 1 - _beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    f, c, d = 1.0, 1.0, 0.0
    for i in range(500):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / ((1 + term * d) or tiny)
        c = 1 + term / c or tiny
        f *= c * d
        if abs(1 - c * d) < 1e-15:
            break
    return front * (f - 1)
