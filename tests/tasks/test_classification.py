"""Sums and counts of one set, against plain loops in float64 and against figures worked out by hand."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony.tasks.classification import label_sums as score

ALL = {"accuracy", "top5", "loss", "f1", "calibration"}


def plain(logits, labels):
    """The same by the definitions, one row and one class at a time."""
    classes = len(logits[0])
    guesses, confidences, loss, top5 = [], [], 0.0, 0
    for row, label in zip(logits, labels, strict=True):
        order = sorted(range(classes), key=lambda c: (-row[c], c))
        peak = max(row)
        total = math.fsum(math.exp(value - peak) for value in row)
        guesses.append(order[0])
        confidences.append(1 / total)
        loss += math.log(total) + peak - row[label]
        top5 += label in order[:5]
    right = [guess == label for guess, label in zip(guesses, labels, strict=True)]
    f1 = 0.0
    for c in set(labels):
        precise = [y == c for g, y in zip(guesses, labels, strict=True) if g == c]
        recalled = [g == c for g, y in zip(guesses, labels, strict=True) if y == c]
        if any(recalled):
            p, r = sum(precise) / len(precise), sum(recalled) / len(recalled)
            f1 += 2 * p * r / (p + r)
    calibration = 0.0
    for b in range(15):
        inside = [(c, r) for c, r in zip(confidences, right, strict=True) if b / 15 < c <= (b + 1) / 15]
        calibration += abs(sum(c for c, _ in inside) - sum(r for _, r in inside))
    n = len(labels)
    scores = {"accuracy": (sum(right), n), "loss": (loss, n), "f1": (f1, len(set(labels)))}
    return scores | {"calibration": (calibration, n)} | ({"top5": (top5, n)} if classes > 5 else {})


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for quantity, (total, n) in expected.items():
        assert found[quantity] == (pytest.approx(total, rel=1e-9, abs=1e-9), n), quantity


@st.composite
def outputs(draw, values):
    classes = draw(st.integers(1, 9))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=30))
    row = st.lists(values, min_size=classes, max_size=classes)
    return [draw(row) for _ in labels], labels


def off_the_edges(logits):
    """No confidence so near an edge of a bin that rounding decides on its side."""
    p = torch.tensor(logits, dtype=torch.float64).softmax(-1).amax(-1) * 15
    return bool(((p - p.round()).abs() > 1e-9).logical_or(p == 15).all())


# Small integers bring ties, of which the first counts.
@settings(deadline=None)
@given(outputs(st.floats(-30, 30)) | outputs(st.integers(-2, 2)))
def test_random_outputs(case):
    logits, labels = case
    found, expected = score(torch.tensor(logits, dtype=torch.float64), torch.tensor(labels)), plain(logits, labels)
    if not off_the_edges(logits):
        del found["calibration"], expected["calibration"]
    assert_equal(found, expected)


def test_a_large_single_precision_set():
    torch.manual_seed(0)
    logits, labels = 3 * torch.randn(2000, 100), torch.randint(100, (2000,))
    found, expected = score(logits, labels), plain(logits.tolist(), labels.tolist())
    for quantity, (total, n) in expected.items():
        assert found[quantity] == (pytest.approx(total, rel=1e-5), n)
    assert found["accuracy"] == expected["accuracy"]
    assert found["top5"] == expected["top5"]


def test_an_example_by_hand():
    # Odds 3 : 1 and 1 : 9, so the confidences are 0.75, 0.75, 0.9 and the guesses 0, 0, 1 for the labels 0, 1, 1.
    logits = torch.tensor([[3, 1], [3, 1], [1, 9]], dtype=torch.float64).log()
    found = score(logits, torch.tensor([0, 1, 1]))
    assert found["accuracy"] == (2, 3)
    # -ln 0.75 - ln 0.25 - ln 0.9
    assert found["loss"] == (pytest.approx(-math.log(0.75 * 0.25 * 0.9)), 3)
    # Class 0: precision 1/2, recall 1; class 1: precision 1, recall 1/2: both 2/3.
    assert found["f1"] == (pytest.approx(4 / 3), 2)
    # Bin 12 (0.733, 0.8]: |0.75 + 0.75 - 1| = 0.5; bin 14 (0.867, 0.933]: |0.9 - 1| = 0.1.
    assert found["calibration"] == (pytest.approx(0.6), 3)
    assert "top5" not in found


def test_f1_leaves_out_classes_that_do_not_occur():
    # Class 2 is guessed once and never right: class 0 has precision 1, recall 1/2; class 1 has both 1.
    found = score(torch.eye(3)[[0, 2, 1]], torch.tensor([0, 0, 1]))
    assert found["f1"] == (pytest.approx(2 / 3 + 1), 2)


def test_a_constant_model_gains_nothing_from_ties():
    labels = torch.arange(10)
    found = score(torch.zeros(10, 10), labels)
    assert found["accuracy"] == (1, 10)
    assert found["top5"] == (5, 10)
    # Class 0: precision 1/10, recall 1.
    assert found["f1"] == (pytest.approx(2 / 11), 10)
    # Confidence 0.1 in ten rows, one of them right.
    assert found["calibration"] == (pytest.approx(0, abs=1e-6), 10)


@pytest.mark.parametrize(("classes", "there"), [(5, False), (6, True)])
def test_top5_needs_more_than_five_classes(classes, there):
    for rows in (0, 3):
        found = score(torch.zeros(rows, classes), torch.zeros(rows, dtype=torch.int64))
        assert ("top5" in found) == there


def test_nothing_scores_nothing():
    assert score(torch.empty(0, 10), torch.empty(0, dtype=torch.int64)) == dict.fromkeys(ALL, (0, 0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_without_a_softmax_all_is_undefined(bad):
    logits = torch.randn(4, 10)
    logits[2, 3] = bad
    labels = torch.tensor([0, 1, 2, 2])
    found = score(logits, labels)
    assert found == {**dict.fromkeys(ALL, (None, 4)), "f1": (None, 3)}


def test_masked_classes_are_only_undefined_in_the_loss():
    logits = torch.tensor([[2.0, 1.0, -math.inf], [0.0, 3.0, -math.inf]])
    assert None not in [total for total, _ in score(logits, torch.tensor([0, 0])).values()]
    found = score(logits, torch.tensor([0, 2]))
    assert found["loss"] == (None, 2)
    assert found["accuracy"] == (1, 2)
    assert found["calibration"][0] is not None


def test_halves_of_a_set_add_up():
    torch.manual_seed(1)
    logits, labels = torch.randn(40, 7, dtype=torch.float64), torch.randint(7, (40,))
    whole, low, high = score(logits, labels), score(logits[:13], labels[:13]), score(logits[13:], labels[13:])
    for quantity in ("accuracy", "top5", "loss"):
        pooled = [a + b for a, b in zip(low[quantity], high[quantity], strict=True)]
        assert pooled == [pytest.approx(whole[quantity][0]), 40]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_single(dtype):
    torch.manual_seed(2)
    logits, labels = torch.randn(50, 10).to(dtype), torch.randint(10, (50,))
    assert score(logits, labels) == score(logits.float(), labels)


def test_plain_numbers_for_json():
    found = score(torch.randn(4, 10, requires_grad=True), torch.tensor([0, 1, 2, 3]))
    assert {name: tuple(pair) for name, pair in json.loads(json.dumps(found)).items()} == found
    assert all(type(total) in (int, float) and type(n) is int for total, n in found.values())


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"expected logits \(N, C\)"):
        score(torch.randn(4, 3), torch.zeros(5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"expected logits \(N, C\)"):
        score(torch.randn(4, 3, 2), torch.zeros(4, dtype=torch.int64))
