"""Means over seeds: against scipy, by hand, and by the properties that Holm's correction has."""

import math
import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heterophony.tables.interval import cdf, holm, interval, paired, quantile

FIGURES = st.lists(st.floats(-1, 1), min_size=2, max_size=8)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 300])
def test_students_distribution_is_scipys(freedom):
    for t in (-30.0, -2.0, -0.3, 0.0, 0.1, 1.0, 2.7, 8.0, 200.0):
        assert cdf(t, freedom) == pytest.approx(stats.t.cdf(t, freedom), abs=1e-12)
    for p in (0.5, 0.9, 0.975, 0.9995):
        assert quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-9, abs=1e-12)


@given(FIGURES)
def test_an_interval_is_scipys(values):
    found = interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, statistics.mean(values), stats.sem(values) or 1e-300)
    assert found.mean == pytest.approx(statistics.mean(values), abs=1e-12)
    assert found.half == pytest.approx((high - low) / 2, rel=1e-6, abs=1e-12)
    # a further run varies by itself and by what we do not know of the mean: variances add
    assert found.reach == pytest.approx(found.half * math.sqrt(len(values) + 1), rel=1e-9, abs=1e-12)


def test_one_seed_says_nothing_of_the_spread_and_an_undefined_figure_nothing_at_all():
    assert (interval([0.5]).half, interval([0.5]).text()) == (None, "50.0")
    assert interval([0.5, None]) is None
    assert interval([]) is None
    assert interval([0.25, 0.75]).text() == "50.0 ± 317.7"  # t(1) = 12.706, deviation 0.35355, by hand


@given(FIGURES, st.integers(0, 10**6))
def test_a_paired_test_is_scipys(values, draw):
    ours, random = dict(enumerate(values)), Random(draw)
    others = {seed: value + random.uniform(-0.2, 0.3) for seed, value in ours.items()}
    expected = stats.ttest_rel(list(ours.values()), list(others.values())).pvalue
    assert paired(ours, others) == pytest.approx(expected, rel=1e-6, abs=1e-10)


def test_only_seeds_that_both_have_are_compared():
    assert paired({0: 0.1, 1: 0.2, 7: 0.9}, {0: 0.0, 1: 0.2, 8: 0.0}) == paired({0: 0.1, 1: 0.2}, {0: 0.0, 1: 0.2})
    assert paired({0: 0.1}, {0: 0.0}) is None
    assert paired({0: 0.1, 1: 0.1}, {0: 0.1, 1: 0.1}) == 1.0
    assert paired({0: 0.2, 1: 0.3}, {0: 0.1, 1: 0.2}) is None  # the same difference twice is no certainty
    assert paired({0: 0.2, 1: 0.3, 2: 0.31}, {0: 0.1, 1: 0.2, 2: 0.21001}) < 0.001


def test_holms_correction_by_hand():
    found = holm({"a": 0.01, "b": 0.04, "c": None, "d": 0.03})
    assert found == {"a": pytest.approx(0.03), "b": pytest.approx(0.06), "c": None, "d": pytest.approx(0.06)}


@given(st.dictionaries(st.text(), st.floats(0, 1), min_size=1))
def test_holms_correction_keeps_the_order_and_makes_nothing_smaller(ps):
    found = holm(ps)
    assert all(ps[name] <= found[name] <= 1 for name in ps)
    assert all(found[a] <= found[b] for a in ps for b in ps if ps[a] < ps[b])
