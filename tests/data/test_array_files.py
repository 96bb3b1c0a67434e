"""Files of arrays of further kinds: numbers between spaces, safetensors; and several columns that are learnt."""

import importlib.util

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from heterophony.data import ArrayLayout, DataError, load
from heterophony.data.sources import arrays, keys
from heterophony.data.sources.stored import opened
from heterophony.data.sources.tables import from_parquet

RNG = np.random.default_rng(1)
X = RNG.normal(size=(6, 5))
Y = np.array([1, 2, 1, 2, 3, 3])


def read(path, **layout):
    return load(str(path), layout=ArrayLayout(**layout))


@pytest.fixture
def texts(tmp_path):
    """A folder as some sets of sensors have it: x, y and whose rows they are in files of their own, two halves."""
    for half in ("train", "test"):
        place = tmp_path / half / "signals"
        place.mkdir(parents=True)
        np.savetxt(tmp_path / half / f"X_{half}.txt", X, fmt="% .7e")
        np.savetxt(tmp_path / half / f"y_{half}.txt", Y, fmt="%d")
        np.savetxt(tmp_path / half / f"who_{half}.txt", [1, 1, 1, 3, 3, 3], fmt="%d")
        for number, axis in enumerate("xyz"):
            np.savetxt(place / f"acc_{axis}_{half}.txt", X + number, fmt="% .7e")
    return tmp_path


# -- numbers between spaces ------------------------------------------------------------------------------------
def test_a_text_file_is_an_array(texts):
    source = read(texts / "train" / "X_train.txt", y="y_train.txt", group="who_train.txt")
    assert (source.train.x.shape, source.train.x.dtype) == ((6, 5), np.float32)
    assert np.allclose(source.train.x, X, atol=1e-6)
    assert (source.classes, source.train.y.tolist()) == (("1", "2", "3"), [0, 1, 0, 1, 2, 2])
    assert source.train.groups.tolist() == [1, 1, 1, 3, 3, 3]


HALVES = {"y": "train/y_train.txt", "group": "train/who_train.txt", "test_y": "test/y_test.txt"}


def test_the_files_of_a_folder_are_keys(texts):
    source = read(f"folder:{texts}", x="train/X_train.txt", test_x="test/X_test.txt", **HALVES)
    assert np.allclose(source.train.x, X, atol=1e-6)
    assert np.allclose(source.test.x, X, atol=1e-6)
    assert source.train.base != source.test.base


def test_files_with_a_star_become_channels_by_their_names(texts):
    source = read(f"folder:{texts}", x="train/signals/*_train.txt", test_x="test/signals/*_test.txt", **HALVES)
    assert source.train.x.shape == source.test.x.shape == (6, 3, 5)
    for channel in range(3):
        assert np.allclose(source.train.x[:, channel], X + channel, atol=1e-6)


def test_channels_that_stand_for_other_things_are_refused(texts):
    (texts / "test" / "signals" / "acc_z_test.txt").rename(texts / "test" / "signals" / "turn_z_test.txt")
    with pytest.raises(DataError, match=r"those of test_x for acc_x, acc_y, turn_z: they must be the same"):
        read(f"folder:{texts}", x="train/signals/*_train.txt", test_x="test/signals/*_test.txt", **HALVES)


def test_what_is_predicted_may_have_another_name(texts):
    layout = ArrayLayout(x="train/X_train.txt", y="train/y_train.txt")
    assert np.allclose(arrays.values(opened(texts / "test" / "X_test.txt"), layout), X, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 3\n4 5\n", r"x\.txt: line 2: there are 2 values, the first line has 3"),
        ("1 2\n\n3 x\n", r"x\.txt: line 3: 'x' is no number"),
        ("1 2\n3 nan\n", r"row 1, array 'x\.txt': nan is no number that can be trained on"),
        ("\n", r"x\.txt: there are no rows"),
    ],
)
def test_wrong_text_files_are_refused_with_their_line(tmp_path, text, said):
    (tmp_path / "x.txt").write_text(text)
    (tmp_path / "y.txt").write_text("0\n1\n")
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path / "x.txt", y="y.txt")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({}, r"say in data\.arrays\.files which files are read"),
        ({"x": "train/X_train.txt", "y": "train/z.txt"}, r"there is no file .*train/z\.txt"),
        ({"x": "train/none_*.txt", "y": "train/y_train.txt"}, r"there is no file 'train/none_\*\.txt'"),
        ({"x": "train/X_train.txt", "y": "train/y_train.txt", "test_file": "a.npz"}, "test_file is for a file"),
        ({"x": "train/X_train.txt", "y": "train/y_train.txt", "train_split": "a"}, "train_split is for folders that"),
        ({"x": "train/X_train.txt", "y": "train/y_train.txt", "each_file": "row"}, "each_file is for folders with"),
    ],
)
def test_wrong_keys_of_a_folder_are_refused(texts, layout, said):
    with pytest.raises(DataError, match=said) as caught:
        read(f"folder:{texts}", **layout)
    assert str(texts) in str(caught.value)


# -- safetensors -----------------------------------------------------------------------------------------------
def test_safetensors_are_arrays(tmp_path):
    save_file({"signals": torch.tensor(X).float(), "y": torch.tensor(Y)}, tmp_path / "f.safetensors")
    source = read(tmp_path / "f.safetensors", x="signals")
    assert np.array_equal(source.train.x, X.astype(np.float32))
    assert source.train.y.tolist() == [0, 1, 0, 1, 2, 2]


def test_safetensors_that_numpy_cannot_hold_are_refused(tmp_path):
    save_file({"x": torch.ones(2, 2, dtype=torch.bfloat16), "y": torch.tensor([0, 1])}, tmp_path / "f.safetensors")
    with pytest.raises(DataError, match=r"f\.safetensors: 'x' holds bfloat16: save it as float32$"):
        read(tmp_path / "f.safetensors")


def test_damaged_safetensors_are_refused(tmp_path):
    (tmp_path / "f.safetensors").write_bytes(b"no such thing")
    with pytest.raises(DataError, match=r"f\.safetensors cannot be read"):
        read(tmp_path / "f.safetensors")


# -- parquet ---------------------------------------------------------------------------------------------------
@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_lists_of_one_length_are_rows_of_their_shape(tmp_path):
    import pyarrow
    import pyarrow.parquet

    columns = {"wave": [[1.0, 2.0], [3.0, 4.0]], "ragged": [[1.0], [1.0, 2.0]], "y": [0, 1]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "f.parquet")
    assert from_parquet(tmp_path / "f.parquet").get("wave").tolist() == columns["wave"]
    assert read(tmp_path / "f.parquet", x="wave", dtype="float32").train.x.shape == (2, 2)
    with pytest.raises(DataError, match=r"row 1, column 'ragged' has the shape \(2,\), the first row has \(1,\)"):
        read(tmp_path / "f.parquet", x="ragged")


# -- several columns to learn ----------------------------------------------------------------------------------
def test_several_columns_are_read_as_numbers_beside_each_other(tmp_path):
    (tmp_path / "f.csv").write_text("a,high,low\n1,120.5,80\n2,130,70\n")
    file = opened(tmp_path / "f.csv")
    filled = keys.filled(file, ArrayLayout(y=("high", "low")))
    assert filled.x == ("a",)
    targets = arrays.stored(file, filled.y)
    assert (targets.tolist(), targets.dtype) == ([[120.5, 80], [130, 70]], np.float32)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,high,low\n1,120,80\n", r"'high, low' must hold one label for each of 1 rows, its shape is \(1, 2\)"),
        ("a,high,low\n1,120,\n", "line 2, column 'low': there is no value"),
        ("a,high,low\n1,inf,80\n", "line 2, column 'high': inf is no number"),
    ],
)
def test_several_columns_are_no_labels_of_classes(tmp_path, text, said):
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        read(tmp_path / "f.csv", y=("high", "low"))


# -- refusals --------------------------------------------------------------------------------------------------
FLOATS = np.ones((4, 3), np.float32)


def put(place, value):
    made = FLOATS.copy()
    made[place] = value
    return made


@pytest.mark.parametrize(
    ("stored", "layout", "said"),
    [
        ({"x": put((3, 1), np.inf), "y": range(4)}, {}, r"row 3, array 'x': inf is no number that can be trained on"),
        ({"x": FLOATS, "y": [0.0, np.nan, 1, 0]}, {}, "row 1, array 'y': nan is no label"),
        ({"x": FLOATS, "y": ["a", "", "a", "b"]}, {}, "row 1, array 'y': there is no label"),
        ({"x": FLOATS, "y": range(4)}, {"scale": 0}, "scale 0 is 0, so that all values would become the same"),
        ({"x": FLOATS, "y": range(4), "s": np.zeros(3)}, {"scale": "s"}, "scale 's' is 0"),
        ({"x": FLOATS, "y": range(4)}, {"scale": float("nan")}, "'x' times scale plus offset is not finite"),
        ({"x": FLOATS, "y": range(4)}, {"group": "who"}, "there is no array 'who'; there are x, y"),
        ({"x": FLOATS, "y": range(4), "g": [1, np.nan, 1, 1]}, {"group": "g"}, "row 1, array 'g': nan names no group"),
        ({"x": FLOATS, "y": range(4)}, {"axes": (1, 0)}, r"'y' must hold one label for each of 3 rows"),
        ({"x": FLOATS, "y": range(4)}, {"axes": (0, 0)}, r"axes names each of 0\.\.1 once"),
        ({"x": np.float32(1), "y": range(4)}, {}, "'x' is one number: rows and values are needed"),
        ({}, {}, "there is no array 'y'; there are none at all"),
        ({"x": FLOATS, "y": range(4)}, {"test_file": "f.npz"}, "test_file is the file itself"),
        ({"x": FLOATS, "y": range(4)}, {"test_x": "x", "test_y": "y"}, "'x' is in x and in test_x, so it would be"),
        ({"x": FLOATS, "y": range(4)}, {"files": "{user}.npz"}, "data.arrays.files is for folders"),
        ({"x": FLOATS, "y": range(4)}, {"test_split": "test"}, "data.arrays.test_split is for folders that"),
        (
            {"x": FLOATS, "y": [0, 1, 0, 1], "t": FLOATS, "u": [0, 0, 2, 1]},
            {"test_x": "t", "test_y": "u"},
            "row 2, array 'u': no training row has the label '2': name all classes in data.arrays.classes",
        ),
        (
            {"x": FLOATS, "y": ["a", "b", "a", "b"], "t": FLOATS, "u": ["a", "b", "b", "B"]},
            {"test_x": "t", "test_y": "u"},
            "row 3, array 'u': no training row has the label 'B'",
        ),
        (
            {"x": FLOATS, "y": [0, 1, 0, 1], "t": FLOATS.astype(np.int64), "u": [0, 0, 0, 1]},
            {"test_x": "t", "test_y": "u"},
            "rows are float32 .* to train on and int64 .* to test on: they must be alike",
        ),
    ],
)
def test_wrong_arrays_are_refused_with_file_key_and_row(tmp_path, stored, layout, said):
    np.savez(tmp_path / "f.npz", **{name: np.asarray(value) for name, value in stored.items()})
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path / "f.npz", **layout)
    assert "f.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x", "y", "test_x", "test_y"])
def test_keys_name_something(name):
    with pytest.raises(DataError, match=rf"^data\.arrays\.{name} names nothing"):
        ArrayLayout(**{name: ()})


def test_of_several_columns_the_wrong_one_is_named(tmp_path):
    (tmp_path / "f.csv").write_text("a,b,y\n1,2,0\n1,2.5,1\n")
    with pytest.raises(DataError, match=r"f\.csv: line 3, column 'b': int64 would cut off"):
        read(tmp_path / "f.csv", dtype="int64")


def test_classes_that_are_named_may_be_in_the_test_half_alone(tmp_path):
    np.savez(tmp_path / "f.npz", x=FLOATS, y=[0, 1, 0, 1], t=FLOATS, u=[0, 0, 2, 1])
    source = read(tmp_path / "f.npz", test_x="t", test_y="u", classes=("a", "b", "c"))
    assert source.test.y.tolist() == [0, 0, 2, 1]


@pytest.mark.parametrize("key", ["x", "y"])
def test_python_objects_in_an_npz_file_are_refused_by_name(tmp_path, key):
    held = {"x": FLOATS, "y": np.arange(4)}
    np.savez(tmp_path / "f.npz", **{**held, key: np.array([{}, [], 1, "a"], dtype=object)})
    with pytest.raises(DataError, match=rf"f\.npz: the array '{key}' holds Python objects: save numbers") as caught:
        read(tmp_path / "f.npz")
    assert "pickle" not in str(caught.value)


@pytest.mark.parametrize("name", ["f.npz", "f.npy", "f.csv", "f.txt", "f.safetensors"])
def test_an_empty_file_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=rf"f\.{name[2:]}") as caught:
        read(tmp_path / name)
    assert "pickle" not in str(caught.value)
    assert "\n" not in str(caught.value)
