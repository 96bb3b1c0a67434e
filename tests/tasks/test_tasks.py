"""Tasks: losses and scores against plain loops, sums that add up over sets, and what is refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony import Classification, MultiLabel, Regression, Segmentation, Sequence
from heterophony.tasks.task import packed, unpacked

TASKS = [
    Classification(4),
    Sequence(5),
    MultiLabel(3),
    MultiLabel(1),
    Regression(),
    Regression(2, error="huber"),
    Segmentation(3),
    Segmentation(2, criterion="both", background=True),
]
named = pytest.mark.parametrize("task", TASKS, ids=str)


def drawn(task, rows, seed):
    """Return random outputs and targets of a task, as (outputs, y, shape of x)."""
    draw = torch.Generator().manual_seed(seed)
    places = {"sequence": (6,), "segmentation": (4, 5)}.get(task.kind, ())
    outputs = torch.randn(rows, task.outputs, *places, generator=draw)
    if task.kind == "regression":
        return outputs, torch.randn(rows, task.targets, generator=draw), (rows, 7)
    if task.kind == "multilabel":
        return outputs, (torch.rand(rows, task.labels, generator=draw) < 0.4).long(), (rows, 7)
    y = torch.randint(0, task.outputs, (rows, *places), generator=draw)
    return outputs, y, (rows, 1, *places) if places else (rows, 7)


def added(*sums):
    """Return sums of several sets, added."""
    names = sums[0].keys()
    return {name: (sum(own[name][0] for own in sums), sum(own[name][1] for own in sums)) for name in names}


@named
def test_a_task_is_the_same_after_its_plain_values(task):
    values = packed(task)
    assert unpacked(values) == task
    assert values["kind"] == task.kind


@named
def test_outputs_have_the_shape_that_a_task_says(task):
    outputs, y, rows = drawn(task, 3, 0)
    assert task.shape(rows[1:]) == outputs.shape[1:]
    assert task.misfit(y, rows) is None


@named
@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_sums_of_sets_add_up_to_those_of_all_rows(task, seed):
    outputs, y, _ = drawn(task, 9, seed)
    whole = task.sums(outputs, y)
    parts = added(task.sums(outputs[:4], y[:4]), task.sums(outputs[4:], y[4:]))
    for score in task.scores:
        if score.name in ("f1", "calibration", "auroc"):  # of the sets' own: of classes, bins and pairs within a set
            continue
        expected = score.of(whole)
        assert score.of(parts) == (None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-6))


@named
def test_outputs_that_are_no_numbers_have_no_score(task):
    outputs, y, _ = drawn(task, 4, 1)
    outputs[1] = math.nan
    assert {score.of(task.sums(outputs, y)) for score in task.scores if score.name != "top5"} == {None}


@named
def test_a_models_distance_from_itself_is_none_and_has_no_gradient_for_the_teacher(task):
    outputs, _, _ = drawn(task, 4, 2)
    teacher, student = outputs.clone().requires_grad_(), outputs.clone().requires_grad_()
    apart = task.distance(teacher, student)
    assert float(apart.detach()) == pytest.approx(0, abs=1e-6)
    (2 * task.distance(teacher + 1, student)).sum().backward()
    assert teacher.grad is None
    assert student.grad is not None


def test_regression_by_plain_loops():
    outputs, y = [[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]], [[0.5, 2.5], [1.0, -1.0], [0.0, 2.0]]
    made = Regression(2)
    sums = made.sums(torch.tensor(outputs), torch.tensor(y))
    errors = [a - b for row, true in zip(outputs, y, strict=True) for a, b in zip(row, true, strict=True)]
    around = 0.0
    for place in range(2):
        column = [true[place] for true in y]
        around += sum((value - sum(column) / 3) ** 2 for value in column)
    mae, rmse, r2 = (score.of(sums) for score in made.scores)
    assert mae == pytest.approx(sum(map(abs, errors)) / 6)
    assert rmse == pytest.approx(math.sqrt(sum(e * e for e in errors) / 6))
    assert r2 == pytest.approx(1 - sum(e * e for e in errors) / around)
    assert float(made.loss(torch.tensor(outputs), torch.tensor(y))) == pytest.approx(sum(e * e for e in errors) / 6)


def test_huber_and_absolute_errors_by_plain_loops():
    outputs, y = torch.tensor([[0.5], [3.0]]), torch.tensor([0.0, 0.0])
    assert float(Regression(error="absolute").loss(outputs, y)) == pytest.approx((0.5 + 3) / 2)
    assert float(Regression(error="huber").loss(outputs, y)) == pytest.approx((0.125 + 2.5) / 2)


def test_auroc_counts_pairs_within_a_set_and_half_of_equal_ones():
    logits, y = torch.tensor([[2.0], [1.0], [1.0], [-1.0]]), torch.tensor([1, 1, 0, 0])
    sums = MultiLabel(1).sums(logits, y)
    assert sums["auroc"] == (3.5, 4)  # (2, 1), (2, -1), (1, -1), and half of (1, 1)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_multilabel_by_plain_loops(seed):
    task = MultiLabel(3)
    outputs, y, _ = drawn(task, 8, seed)
    sums = task.sums(outputs.round(), y)  # rounded: some logits are equal
    logits, true = outputs.round().tolist(), y.tolist()
    won = pairs = 0.0
    for place in range(3):
        for row, other in ((a, b) for a in range(8) for b in range(8) if true[a][place] > true[b][place]):
            here, there = logits[row][place], logits[other][place]
            won += 1.0 if here > there else 0.5 if here == there else 0.0
            pairs += 1
    right = [
        [(value > 0) == bool(label) for value, label in zip(a, b, strict=True)]
        for a, b in zip(logits, true, strict=True)
    ]
    assert sums["auroc"] == (won, pairs)
    assert sums["accuracy"] == (sum(map(sum, right)), 24)
    assert sums["exact"] == (sum(map(all, right)), 8)


def test_dice_and_iou_by_plain_loops():
    task = Segmentation(3)
    outputs, y, _ = drawn(task, 4, 5)
    guess, true = outputs.argmax(1).flatten().tolist(), y.flatten().tolist()
    dice, iou = [], []
    for label in (1, 2):
        both = sum(g == label and t == label for g, t in zip(guess, true, strict=True))
        one = sum(g == label for g in guess) + sum(t == label for t in true)
        dice.append(2 * both / one)
        iou.append(both / (one - both))
    found = task.sums(outputs, y)
    assert task.scores[0].of(found) == pytest.approx(sum(dice) / 2)
    assert task.scores[1].of(found) == pytest.approx(sum(iou) / 2)


def test_a_class_that_is_neither_true_nor_predicted_does_not_count():
    outputs = torch.zeros(1, 3, 2, 2)
    outputs[:, 1] = 1.0
    assert Segmentation(3).scores[0].of(Segmentation(3).sums(outputs, torch.ones(1, 2, 2).long())) == 1.0


def test_soft_dice_by_plain_loops():
    task = Segmentation(2, criterion="dice")
    outputs, y, _ = drawn(task, 2, 3)
    shares, true = outputs.softmax(1)[:, 1].flatten().tolist(), y.flatten().tolist()
    common = sum(p * t for p, t in zip(shares, true, strict=True))
    assert float(task.loss(outputs, y)) == pytest.approx(1 - (2 * common + 1) / (sum(shares) + sum(true) + 1))


def test_perplexity_is_the_exponential_of_the_mean_loss():
    task = Sequence(5)
    outputs, y, _ = drawn(task, 3, 4)
    found = task.sums(outputs, y)
    assert task.scores[-1].of(found) == pytest.approx(math.exp(float(task.loss(outputs, y))))


WRONG = [
    (Classification(3), torch.tensor([0, 3]), (2, 4), "row 1 has the label 3; labels are 0..2"),
    (Classification(3), torch.tensor([0, -1]), (2, 4), "row 1 has the label -1"),
    (Classification(3), torch.tensor([0.0, 1.0]), (2, 4), "labels are whole numbers (int64), got float32"),
    (Classification(3), torch.zeros(2, 2, 2).long(), (2, 4), "one label a row is needed"),
    (Sequence(3), torch.zeros(2, 4).long(), (2, 5), "each of 5 places of a row needs a label"),
    (MultiLabel(2), torch.tensor([[0, 1], [2, 0]]), (2, 4), "row 1 has a label that is not 0 or 1"),
    (MultiLabel(2), torch.tensor([0, 1]), (2, 4), "2 labels for each of 2 rows are needed"),
    (Regression(), torch.tensor([0.0, math.nan]), (2, 4), "row 1 has a target that is no finite number"),
    (Regression(2), torch.zeros(2, 3), (2, 4), "2 numbers for each of 2 rows are needed"),
    (Segmentation(2), torch.zeros(2, 3, 3).long(), (2, 1, 4, 4), "masks of the shape (2, 4, 4) are needed"),
    (Segmentation(2), torch.full((2, 4, 4), 7), (2, 1, 4, 4), "row 0 has the label 7; labels are 0..1"),
]


@pytest.mark.parametrize(("task", "y", "rows", "line"), WRONG, ids=[line for *_, line in WRONG])
def test_what_is_wrong_with_targets_is_one_line(task, y, rows, line):
    assert line in task.misfit(y, rows)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"kind": "regresion"}, "there is no task 'regresion', perhaps you meant 'regression'"),
        ({"kind": "regression", "targets": 0}, "targets >= 1"),
        ({"kind": "regression", "error": "cubed"}, "squared, absolute or huber"),
        ({"kind": "multilabel", "labels": 0}, "labels >= 1"),
        ({"kind": "segmentation", "classes": 1}, "classes >= 2"),
        ({"kind": "segmentation", "classes": 2, "criterion": "mse"}, "ce, dice or both"),
    ],
)
def test_tasks_that_cannot_be(values, line):
    with pytest.raises(ValueError, match=line):
        unpacked(values)
