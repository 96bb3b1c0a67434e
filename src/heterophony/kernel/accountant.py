"""How much has been told: epsilon at a delta, by the library `dp-accounting`, never by arithmetic of our own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from heterophony.kernel.privacy import Charge

HINT = "privacy needs dp-accounting: pip install 'heterophony[privacy]'"
Composed = tuple[tuple[float, float, int], ...]  # multiplier, rate and count of each mechanism


class PrivacyError(ValueError):
    """What is asked for is not private, or cannot be accounted for; the text says what to do."""


def library() -> Any:
    """Return the library. It is imported here, as it takes seconds; where it is missing, one line says so."""
    try:
        import dp_accounting
        from dp_accounting.pld import privacy_loss_mechanism  # noqa: F401  (reached through dp_accounting.pld)
    except ImportError as error:
        raise PrivacyError(f"{HINT} ({error})") from None
    return dp_accounting


def composed(charges: Iterable[Charge]) -> Composed:
    """Return what these charges are together: equal mechanisms are counted, in one order."""
    counts: Counter[tuple[float, float]] = Counter()
    for charge in charges:
        counts[charge.multiplier, charge.rate] += charge.times
    return tuple((multiplier, rate, count) for (multiplier, rate), count in sorted(counts.items()))


@lru_cache(maxsize=4096)
def within(spent: Composed, epsilon: float, delta: float) -> bool:
    """Return whether all of this is (epsilon, delta)-differentially private."""
    return _delta(spent, epsilon) <= delta


@lru_cache(maxsize=4096)
def epsilon_of(spent: Composed, delta: float) -> float:
    """Return the epsilon of all of this at a delta: a little above the least, never below."""
    low, high = 0.0, 1.0
    if _delta(spent, 0.0) <= delta:
        return 0.0
    while _delta(spent, high) > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(spent, middle) > delta else (low, middle)
    return high


def _delta(spent: Composed, epsilon: float) -> float:
    """Return the delta of all of this at an epsilon."""
    if not spent:
        return 0.0
    if all(rate == 1 for _, rate, _ in spent):  # Gaussian mechanisms are one together, whose delta is a formula
        told = math.sqrt(math.fsum(count / multiplier**2 for multiplier, _, count in spent))
        loss = library().pld.privacy_loss_mechanism.GaussianPrivacyLoss(1 / told)
        return float(loss.get_delta_for_epsilon(epsilon))
    return float(_losses(spent).get_delta_for_epsilon(epsilon))


@lru_cache(maxsize=256)
def _losses(spent: Composed) -> Any:
    """Return the distribution of the privacy loss. Rounding is towards more loss."""
    dp = library()
    # Coarser where much is told: a bin is then a smaller share of the loss, and far fewer have to be convolved.
    told = math.sqrt(math.fsum(count * min(1.0, rate) ** 2 / multiplier**2 for multiplier, rate, count in spent))
    accountant = dp.pld.PLDAccountant(value_discretization_interval=min(0.01, max(1e-4, told * 1e-3)))
    for multiplier, rate, count in spent:
        event = dp.GaussianDpEvent(multiplier)
        if rate < 1:
            event = dp.PoissonSampledDpEvent(rate, event)
        accountant.compose(event, count)
    return accountant._pld


def by_label(charges: Iterable[Charge], delta: float) -> Mapping[str, float]:
    """Return the epsilon of each kind's releases by themselves."""
    found: dict[str, list[Charge]] = {}
    for charge in charges:
        found.setdefault(charge.label, []).append(charge)
    return {label: epsilon_of(composed(own), delta) for label, own in found.items()}


def added(charges: Iterable[Charge], new: Charge) -> list[Charge]:
    """Return the charges with one more: one that is like another raises that one's count."""
    found = {(c.label, c.multiplier, c.rate): c.times for c in charges}
    key = new.label, new.multiplier, new.rate
    found[key] = found.get(key, 0) + new.times
    return [Charge(*like, count) for like, count in found.items()]
