"""Train, validation, public and test are apart, by the identity of the base image."""

import numpy as np
import pytest

from heterophony.data import BaseIds, DataError, LeakageError, check_leakage, divide, load, to_tensor


def ids(*rows, base="mnist/train", labels=None):
    return BaseIds(base, np.array(rows, dtype=np.int64), None if labels is None else np.array(labels))


def test_disjoint_views_pass():
    views = {
        "a": {"train": ids(0, 1), "validation": ids(2), "public": ids(3)},
        "b": {"train": ids(4, 5), "validation": ids(2), "public": ids(3)},
        "everyone": {"test": ids(0, 1, 2, base="mnist/test")},
    }
    report = check_leakage(views)
    assert report.images == {"train": 4, "validation": 1, "public": 1, "test": 3}
    assert report.overlaps == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("train", "validation"),
        ("train", "public"),
        ("train", "test"),
        ("train", "private-test"),
        ("validation", "public"),
        ("validation", "test"),
        ("validation", "private-test"),
        ("public", "test"),
        ("public", "private-test"),
    ],
)
def test_every_forbidden_pair_is_found_across_participants(first, second):
    views = {"a": {first: ids(1, 2, 3)}, "b": {second: ids(3, 2, 9)}}
    with pytest.raises(LeakageError) as caught:
        check_leakage(views)
    text = str(caught.value)
    assert f"2 images of mnist/train are in {first} (of a) and in {second} (of b)" in text
    assert "allow_leakage=True" in text
    assert "\n" not in text
    with pytest.raises(LeakageError):
        check_leakage({"a": {first: ids(1), second: ids(1)}})


def test_a_private_test_is_a_part_of_the_test():
    report = check_leakage({"a": {"private-test": ids(1, 2)}, "all": {"test": ids(1, 2, 3)}})
    assert report.overlaps == ()


def test_the_same_row_of_another_set_is_another_image():
    check_leakage({"a": {"train": ids(1), "test": ids(1, base="mnist/test"), "public": ids(1, base="usps/train")}})


def test_shared_training_images_need_the_flag():
    views = {"a": {"train": ids(1, 2)}, "b": {"train": ids(2, 3)}, "c": {"train": ids(4)}}
    with pytest.raises(LeakageError, match=r"1 images of mnist/train are in the train views of a, b: .*shared_train"):
        check_leakage(views)
    report = check_leakage(views, shared_train=True)
    assert [(o.first, o.second, o.images) for o in report.overlaps] == [("train", "train", 1)]


def test_shared_training_images_are_no_licence_to_leak():
    with pytest.raises(LeakageError, match=r"in train .* and in test"):
        check_leakage({"a": {"train": ids(1)}, "b": {"train": ids(1), "test": ids(1)}}, shared_train=True)


def test_one_image_twice_in_one_view_is_no_leak():
    check_leakage({"a": {"train": ids(1, 1, 2)}})


def test_a_view_may_mix_several_sets():
    views = {
        "a": {"train": [ids(1), ids(1, base="usps/train")]},
        "b": {"public": [ids(2), ids(1, base="usps/train")]},
    }
    with pytest.raises(LeakageError, match="1 images of usps/train are in train"):
        check_leakage(views)


def test_many_holders_are_shortened_and_the_worst_pair_is_named():
    views = {f"client-{i}": {"train": ids(i, 100)} for i in range(9)}
    views["x"] = {"test": ids(*range(9)), "validation": ids(3)}
    with pytest.raises(LeakageError) as caught:
        check_leakage(views)
    assert "9 images of mnist/train are in train (of client-0, client-1, client-2 and 6 more)" in str(caught.value)
    assert "2 more such pairs" in str(caught.value)


def test_allowed_leaks_are_reported():
    report = check_leakage({"a": {"train": ids(1, 2)}, "b": {"test": ids(2, 3)}}, allow_leakage=True)
    (overlap,) = report.overlaps
    assert (overlap.first, overlap.second, overlap.images) == ("train", "test", 1)
    assert (overlap.first_of, overlap.second_of) == (("a",), ("b",))
    assert "1 images of mnist/train are in train (of a) and in test (of b)" in str(overlap)


def test_covered_classes_are_reported():
    views = {
        "a": {"train": ids(1, 2, labels=[4, 4]), "test": ids(1, 2, base="mnist/test", labels=[4, 7])},
        "b": {"train": ids(3, labels=[0])},
    }
    report = check_leakage(views)
    assert report.classes == {"mnist": {"train": (0, 4), "test": (4, 7)}}
    assert report.untrained() == ("of mnist these classes are tested, but nobody trains on them: 7",)


def test_wrong_views_are_refused():
    with pytest.raises(DataError, match="a has a view 'trian'"):
        check_leakage({"a": {"trian": ids(1)}})
    with pytest.raises(DataError, match="2 base rows but 1 labels"):
        ids(1, 2, labels=[1])
    with pytest.raises(DataError, match="integers"):
        BaseIds("x", np.array([0.5]))


def rotated_federation(leaky):
    """FedH2L's rotated digits: base images split once, or anew for each domain as the paper does."""
    digits = load("digits-embedded").train
    fractions, names = (0.65, 0.10, 0.10, 0.15), ("train", "public", "validation", "test")
    once = divide(np.arange(len(digits)), fractions, np.random.default_rng(0))
    views = {}
    for degrees in (0, 20, 40, 60):
        own = divide(np.arange(len(digits)), fractions, np.random.default_rng(degrees)) if leaky else once
        # The pixels of the domains differ, their base images do not.
        pixels = to_tensor(digits.x[own[3]], degrees=degrees)
        assert pixels.shape == (150, 1, 28, 28)
        views[f"M{degrees}"] = {name: digits.ids(rows) for name, rows in zip(names, own, strict=True)}
    return views


def test_rotated_copies_are_the_same_image():
    with pytest.raises(LeakageError, match=r"images of mnist/train are in .* \(of M0"):
        check_leakage(rotated_federation(leaky=True), shared_train=True)
    report = check_leakage(rotated_federation(leaky=True), allow_leakage=True)
    assert any({o.first, o.second} == {"train", "test"} and o.images > 100 for o in report.overlaps)


def test_base_images_split_once_do_not_leak():
    views = rotated_federation(leaky=False)
    with pytest.raises(LeakageError, match="shared_train=True"):
        check_leakage(views)
    report = check_leakage(views, shared_train=True)
    assert report.images == {"train": 650, "validation": 100, "public": 100, "test": 150}
    assert report.classes["mnist"]["test"] == tuple(range(10))
    assert report.untrained() == ()


def test_the_embedded_digits_are_known_as_mnist(real):
    mnist, digits = real("mnist"), load("digits-embedded")
    with pytest.raises(LeakageError, match="1000 images of mnist/train"):
        check_leakage({"a": {"train": digits.train.ids(), "public": mnist.train.ids()}})
