"""The heart data of four hospitals: FLamby's preparation and split."""

import numpy as np
import pytest

from heterophony.data import DataError, load
from heterophony.data.sources.heart import HOSPITALS, division

# Hospital: all rows, rows to test on, of which ill; from FLamby's own code on the same files.
COUNTS = {"cleveland": (303, 104), "hungarian": (261, 89), "switzerland": (46, 16), "va": (130, 45)}
LINE = "63.0,1.0,{pain},145.0,233.0,1.0,{ecg},150.0,0.0,{depression},3.0,0.0,6.0,{ill}"


@pytest.fixture
def made(tmp_path):
    """Writes a file of a hospital, of lines with these values."""

    def write(rows, hospital="va"):
        usual = {"pain": 1, "ecg": 0, "depression": 2.3, "ill": 0}
        lines = [row if isinstance(row, str) else LINE.format(**usual | row) for row in rows]
        (tmp_path / "heart").mkdir(exist_ok=True)
        (tmp_path / "heart" / f"processed.{hospital}.data").write_text("\n".join(lines) + "\n")
        return tmp_path

    return write


@pytest.mark.parametrize(("hospital", "counts"), COUNTS.items())
def test_a_hospital_has_the_rows_of_flambys_split(real, hospital, counts):
    whole, tested = counts
    source = real(f"heart/{hospital}")
    assert (len(source.train), len(source.test)) == (whole - tested, tested)
    assert source.train.x.shape[1:] == (13,)
    assert np.allclose(source.train.x.mean(0), 0, atol=1e-5)
    deviations = source.train.x.std(0, ddof=1)
    assert np.all(np.isclose(deviations, 1, atol=1e-5) | (deviations == 0))
    assert set(source.train.groups) == {hospital}


def test_all_hospitals_together_are_standardised_together(real):
    whole = real("heart")
    assert (len(whole.train), len(whole.test)) == (486, 254)
    assert [int((whole.train.groups == name).sum()) for name in HOSPITALS] == [199, 172, 30, 85]
    assert np.allclose(whole.train.x.std(0, ddof=1), 1, atol=1e-5)
    for hospital in HOSPITALS:  # the same patients, whichever way they are asked for
        own = real(f"heart/{hospital}")
        for half, part in ((whole.train, own.train), (whole.test, own.test)):
            here = half.groups == hospital
            assert np.array_equal(half.index[here], part.index)
            assert np.array_equal(half.y[here], part.y)


@pytest.mark.parametrize(
    ("y", "train", "test"),
    [  # what train_test_split(np.arange(n), test_size=0.34, train_size=0.66, random_state=43, stratify=y) gives
        ([0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0], [2, 3, 4, 6, 9, 10, 11], [0, 1, 5, 7, 8]),
        ([1, 1, 1, 0, 1, 1, 1, 1, 1, 1], [0, 1, 2, 4, 5, 7], [3, 6, 8, 9]),  # one row of a class: not stratified
    ],
)
def test_the_split_is_that_of_scikit_learn(y, train, test):
    found = division(np.array(y))
    assert [rows.tolist() for rows in found] == [train, test]


def test_the_split_equals_scikit_learns_on_many_draws():
    selection = pytest.importorskip("sklearn.model_selection")
    for seed in range(50):
        draw = np.random.default_rng(seed)
        y = (draw.random(draw.integers(8, 300)) < draw.random()).astype(np.int64)
        rare = min(np.bincount(y, minlength=2)) <= 2
        wanted = selection.train_test_split(
            np.arange(len(y)), test_size=1 - 0.66, train_size=0.66, random_state=43, stratify=None if rare else y
        )
        assert all(np.array_equal(ours, np.sort(theirs)) for ours, theirs in zip(division(y), wanted, strict=True))


def test_rows_with_a_missing_value_are_left_out_and_categories_become_columns(made):
    rows = [{"pain": 1 + n % 4, "ecg": n % 3, "depression": n, "ill": n % 5} for n in range(12)]
    missing = [LINE.format(pain=mark, ecg=0, depression=1, ill=0) for mark in ("-9", "?")]
    root = made([*rows[:6], missing[0], *rows[6:], missing[1]])
    source = load("heart/va", root)
    assert sorted([*source.train.index, *source.test.index]) == [3000 + line for line in range(13) if line != 6]
    levels = source.train.x[:, 8:11] > 0  # of columns of 0 and 1, only the 1 is above the mean
    kind = np.array([(line - 3000 - (line > 3006)) % 4 for line in source.train.index])
    assert np.array_equal(levels, kind[:, None] == [1, 2, 3])
    by_line = {line - 3000 - (line > 3006): y for line, y in zip(source.train.index, source.train.y, strict=True)}
    assert all(y == (row % 5 > 0) for row, y in by_line.items())


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["63,1,1"], "processed.va.data: line 1: there are 3 values, not 14"),
        ([{}, {"depression": "high"}], "processed.va.data: line 2: a value is no number"),
        ([{}, {"pain": 7}], "processed.va.data: line 2: column 3 is 7, not one of 1, 2, 3, 4"),
        ([{"pain": "?"}], "processed.va.data: no row is complete"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(made, rows, line):
    with pytest.raises(DataError, match=line) as refused:
        load("heart/va", made(rows))
    assert "\n" not in str(refused.value)


def test_missing_hospitals_are_asked_for_by_name(made):
    with pytest.raises(DataError, match=r"processed\.cleveland\.data and processed\.hungarian\.data") as refused:
        load("heart", made([{}]))
    assert "(in heart)" in str(refused.value)
