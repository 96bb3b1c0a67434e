"""Means: against loops in float64, and their properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heterophony.kernel.node import Node, Slot
from heterophony.parts.aggregate import difference, dot, mean, shifted

# A share of a number near the smallest normal float is subnormal and loses digits, as every product there does.
numbers = st.floats(-100, 100, width=32).map(lambda number: number if abs(number) > 1e-30 else 0.0)
items = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=6)


def named(values):
    return {"a": torch.tensor(values[:2]), "b": torch.tensor(values[2:])}


@given(items, st.data())
def test_the_mean_is_what_a_loop_computes(rows, data):
    shares = data.draw(st.lists(st.floats(0.1, 10), min_size=len(rows), max_size=len(rows)))
    got = mean([named(row) for row in rows], shares)
    for place, value in enumerate(torch.cat([got["a"], got["b"]]).tolist()):
        expected = sum(share * row[place] for row, share in zip(rows, shares, strict=True)) / sum(shares)
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-3)


@given(items)
def test_the_mean_of_equal_items_is_the_item_and_inputs_stay_as_they_are(rows):
    first = named(rows[0])
    before = {name: tensor.clone() for name, tensor in first.items()}
    got = mean([first, first, first, first])
    assert all(torch.equal(got[name], before[name]) for name in got)
    assert all(torch.equal(first[name], before[name]) for name in first)


def test_weights_that_are_parts_of_one_tensor_have_the_same_mean_to_the_bit():
    copies = []
    for seed in range(3):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
        copies.append(Node("a", "client", slots={"model": Slot(network)}).weights())
    found, plain = mean(copies, [1, 2, 4]), mean([dict(item) for item in copies], [1, 2, 4])
    assert list(found) == list(plain)
    assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_equal_weights_are_no_weights():
    rows = [named([1.0, 2.0, 3.0]), named([5.0, -2.0, 0.5])]
    assert all(torch.equal(mean(rows)[n], mean(rows, [7, 7])[n]) for n in rows[0])


def test_no_items_and_bad_shares_are_errors():
    with pytest.raises(ValueError, match="skipped round"):
        mean([])
    with pytest.raises(ValueError, match="shares >= 0"):
        mean([named([1.0, 2.0, 3.0])], [-1.0])


def test_where_nobody_has_examples_all_count_alike():
    rows = [named([1.0, 2.0, 3.0]), named([5.0, -2.0, 0.5])]
    assert all(torch.equal(mean(rows)[n], mean(rows, [0, 0])[n]) for n in rows[0])


def test_differences():
    a, b = named([1.0, 2.0, 3.0]), named([0.5, 0.5, 0.5])
    assert difference(a, b)["a"].tolist() == [0.5, 1.5]
    assert shifted(a, {"b": b["b"]}, 2.0)["b"].tolist() == [4.0]
    assert shifted(a, {"b": b["b"]}, 2.0)["a"].tolist() == [1.0, 2.0]
    assert float(dot(a, b)) == 3.0
