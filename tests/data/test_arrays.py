"""Arrays of any shape from one's own files: read as they are, changed where asked, refused in one line otherwise."""

import importlib.util

import numpy as np
import pytest
import torch

from heterophony.data import ArrayLayout, DataError, load

X = np.random.default_rng(0).integers(0, 256, (12, 6, 20), dtype=np.uint8)
Y = np.arange(12) % 3
USERS = np.repeat([4, 9, 2], 4)


@pytest.fixture
def file(tmp_path):
    """Writes `f.npz` and returns its path as text."""

    def put(**arrays):
        np.savez(tmp_path / "f.npz", **arrays)
        return str(tmp_path / "f.npz")

    return put


@pytest.fixture
def table(tmp_path):
    """Writes `f.csv` and returns its path as text."""

    def put(text, name="f.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return put


def read(path, **layout):
    return load(path, layout=ArrayLayout(**layout))


def test_an_array_is_read_as_it_is_stored(file):
    x = torch.randn(12, 6, 20).numpy()
    source = read(file(signals=x, activity=Y, who=USERS), x="signals", y="activity", group="who")
    assert source.train.x.dtype == np.float32
    assert np.array_equal(source.train.x, x)
    assert np.array_equal(source.train.y, Y)
    assert np.array_equal(source.train.groups, USERS)
    assert (source.classes, len(source.test)) == (("0", "1", "2"), 0)
    assert np.array_equal(source.train.take(np.array([5, 1])).groups, USERS[[5, 1]])


def test_numbers_scale_the_values(file):
    source = read(file(x=X, y=Y), scale=0.5, offset=-3.0)
    assert np.array_equal(source.train.x, X.astype(np.float32) * 0.5 - 3)


def test_a_scale_may_be_a_key_and_belongs_to_the_axis_of_its_length(file):
    scale = np.arange(1, 7) / 10
    path = file(x=X, y=Y, scale=scale, offset=np.arange(20.0)[None, None], each=np.arange(12), one=np.float64(2))
    assert np.allclose(read(path, scale="scale").train.x, X * scale[:, None])
    assert np.allclose(read(path, scale="one", offset="offset").train.x, X * 2.0 + np.arange(20))
    assert np.allclose(read(path, scale="each").train.x, X * np.arange(12)[:, None, None])


def test_axes_and_types_change_where_they_are_asked_to(file):
    source = read(file(x=X, y=Y), axes=(0, 2, 1), dtype="float32")
    assert (source.train.x.shape, source.train.x.dtype) == ((12, 20, 6), np.float32)
    assert np.array_equal(source.train.x, X.transpose(0, 2, 1))
    assert read(file(x=X, y=Y), dtype="int64").train.x.dtype == np.int64
    rows_last = read(file(x=np.moveaxis(X, 0, -1), y=Y), axes=(2, 0, 1), dtype="float32")
    assert np.array_equal(rows_last.train.x, X)


def test_several_arrays_become_channels(file):
    parts = {f"axis{i}": torch.randn(12, 20).numpy() for i in range(3)}
    source = read(file(**parts, y=Y), x=tuple(parts))
    assert source.train.x.shape == (12, 3, 20)
    assert np.array_equal(source.train.x[:, 1], parts["axis1"])


def test_a_test_half_is_in_the_same_file_or_beside_it(file, tmp_path):
    whole = X.astype(np.float32)
    by_name = read(file(train_x=whole[:8], train_y=Y[:8], test_x=whole[8:], test_y=Y[8:]))
    named = read(file(a=whole[:8], b=Y[:8], c=whole[8:], d=Y[8:]), x="a", y="b", test_x="c", test_y="d")
    np.savez(tmp_path / "later.npz", a=whole[8:], b=Y[8:])
    beside = read(file(a=whole[:8], b=Y[:8]), x="a", y="b", test_file="later.npz")
    for source in (by_name, named, beside):
        assert (len(source.train), len(source.test)) == (8, 4)
        assert np.array_equal(source.test.x, whole[8:])
        assert source.train.base != source.test.base


def test_npy_files_lie_beside_each_other(tmp_path):
    np.save(tmp_path / "windows.npy", X)
    np.save(tmp_path / "labels.npy", Y)
    np.save(tmp_path / "users.npy", USERS)
    source = read(str(tmp_path / "windows.npy"), y="labels.npy", group="users.npy", scale=1 / 255)
    assert np.allclose(source.train.x, X / 255)
    assert np.array_equal(source.train.groups, USERS)


@pytest.mark.parametrize(
    ("labels", "names", "classes", "numbers"),
    [
        (["walk", "sit", "walk"], (), ("sit", "walk"), [1, 0, 1]),
        (["walk", "sit", "walk"], ("walk", "sit", "run"), ("walk", "sit", "run"), [0, 1, 0]),
        ([1, 6, 3], (), ("1", "3", "6"), [0, 2, 1]),
        ([-1, 1, 1], (), ("-1", "1"), [0, 1, 1]),
        ([0.0, 2.0, 1.0], (), ("0", "1", "2"), [0, 2, 1]),
        ([True, False, True], (), ("0", "1"), [1, 0, 1]),
        ([0, 2, 0], ("a", "b", "c"), ("a", "b", "c"), [0, 2, 0]),
        ([2, 1, 2], ("1", "2"), ("1", "2"), [1, 0, 1]),
    ],
)
def test_labels_become_classes(file, labels, names, classes, numbers):
    source = read(file(x=np.ones((3, 2), np.float32), y=np.array(labels)), classes=names)
    assert (source.classes, source.train.y.tolist()) == (classes, numbers)


def test_classes_may_stand_in_the_file(file):
    source = read(file(x=np.ones((3, 2), np.float32), y=[0, 1, 0], classes=["no", "yes", "unsure"]))
    assert source.classes == ("no", "yes", "unsure")


CSV = "age,who,sex,ill\n61,b,0,no\n72.5,a,1,yes\n\n38,b,1,no\n"


def test_columns_of_a_table_are_named(table):
    source = read(table(CSV), y="ill", group="who")
    assert source.train.x.tolist() == [[61, 0], [72.5, 1], [38, 1]]
    assert source.train.x.dtype == np.float32
    assert (source.classes, source.train.y.tolist()) == (("no", "yes"), [0, 1, 0])
    assert source.train.groups.tolist() == ["b", "a", "b"]
    assert read(table(CSV), x=("sex", "age"), y="ill").train.x[1].tolist() == [1, 72.5]
    assert read(table(CSV), x="age", y="ill").train.x.shape == (3, 1)


def test_numbers_name_groups_as_numbers(table):
    source = read(table("v,who,y\n1,10,0\n2,9,1\n"), group="who")
    assert source.train.groups.dtype == np.int64
    assert np.unique(source.train.groups).tolist() == [9, 10]


def test_a_test_table_is_beside_the_other(table):
    table("age,sex,ill,who\n50,1,yes,c\n", "later.csv")
    source = read(table(CSV), x=("age", "sex"), y="ill", test_file="later.csv")
    assert (source.test.x.tolist(), source.test.y.tolist()) == ([[50, 1]], [1])


def test_a_function_may_give_arrays_of_any_shape(tmp_path, monkeypatch):
    text = "import numpy as np\n\ndef windows():\n    return {'x': np.ones((4, 3), np.float32), 'who': [1, 1, 2, 2], "
    (tmp_path / "windows_of_mine.py").write_text(text + "'y': [0, 1, 0, 1]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    source = read("windows_of_mine:windows", group="who")
    assert (source.train.x.shape, source.train.groups.tolist()) == ((4, 3), [1, 1, 2, 2])


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_parquet_file_is_a_table(tmp_path):
    import pyarrow
    import pyarrow.parquet

    columns = {"age": [61.0, 72.5], "who": ["b", "a"], "ill": ["no", "yes"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "f.parquet")
    source = read(str(tmp_path / "f.parquet"), y="ill", group="who")
    assert (source.train.x.tolist(), source.train.groups.tolist()) == ([[61.0], [72.5]], ["b", "a"])


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) for name in ("pyarrow", "pandas")), reason="something reads such files"
)
def test_without_a_reader_a_parquet_file_says_what_to_install(tmp_path):
    (tmp_path / "f.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        DataError, match=r"f\.parquet: reading \.parquet files needs pyarrow: pip install 'heterophony\[parquet\]'$"
    ):
        read(str(tmp_path / "f.parquet"))


FLOATS = np.ones((4, 3), np.float32)
GAP = np.where(np.arange(12).reshape(4, 3) == 7, np.nan, 1).astype(np.float32)


@pytest.mark.parametrize(
    ("arrays", "layout", "said"),
    [
        ({"signals": FLOATS, "y": range(4)}, {"x": "signal"}, "no array 'signal', perhaps you meant 'signals'"),
        ({"x": FLOATS}, {}, "no array 'y'; there are x"),
        ({"x": FLOATS.astype(float), "y": range(4)}, {}, r"'x' is float64, .* set dtype = \"float32\"$"),
        ({"x": X, "y": Y}, {}, "'x' is uint8, .* scale and offset"),
        ({"x": GAP, "y": range(4)}, {}, "row 2, array 'x': nan is no number"),
        ({"x": FLOATS, "y": range(3)}, {}, "'y' must hold one label for each of 4 rows"),
        ({"x": FLOATS, "y": [0, 1, 1.5, 0]}, {}, "row 2, array 'y': 1.5 is no label"),
        (
            {"x": FLOATS, "y": [0, 1, 2, 7]},
            {"classes": ("a", "b", "c")},
            "row 3, array 'y': the label 7 is not in 0..2",
        ),
        ({"x": FLOATS, "y": ["a", "b", "a", "z"]}, {"classes": ("a", "b")}, "row 3, array 'y': 'z' is none of the"),
        ({"x": FLOATS, "y": range(4), "g": [1, 2]}, {"group": "g"}, "'g' must name one group for each of 4 rows"),
        ({"x": FLOATS, "y": range(4), "g": [1.5, 2, 2, 2]}, {"group": "g"}, "'g' names groups by float64"),
        ({"x": FLOATS, "y": range(4), "g": ["a", "", "a", "b"]}, {"group": "g"}, "row 1, array 'g': there is no value"),
        ({"x": FLOATS[:, 0], "y": range(4)}, {}, r"shape \(4,\): rows and values are needed"),
        ({"x": FLOATS, "y": range(4)}, {"axes": (0, 2)}, r"axes names each of 0\.\.1 once"),
        (
            {"x": FLOATS, "y": range(4), "s": np.ones(5)},
            {"scale": "s"},
            "scale 's' has the shape .* does not tell the axis",
        ),
        ({"x": np.ones((3, 3), np.float32), "y": range(3), "s": np.ones(3)}, {"scale": "s"}, "does not tell the axis"),
        ({"x": FLOATS / 2, "y": range(4)}, {"dtype": "int64"}, "row 0, array 'x': int64 would cut off"),
        ({"x": np.array(["a", "b"]), "y": [0, 1]}, {}, "'x' holds texts, not numbers"),
        ({"x": FLOATS, "y": range(4)}, {"test_file": "none.npz"}, "there is no file .*none.npz"),
        ({"x": FLOATS, "y": range(4)}, {"test_y": "y"}, "test_y and test_group go with test_x"),
        ({"x": FLOATS, "y": range(4), "t": FLOATS[:, :2]}, {"test_x": "t", "test_y": "y"}, "they must be alike"),
        ({"x": FLOATS, "y": range(4), "z": FLOATS[:2]}, {"x": ("x", "z")}, r"'z' has the shape \(2, 3\), 'x' has"),
        ({"x": FLOATS, "y": [1, 1, 1, 1]}, {}, "all 4 labels of 'y' are '1': two classes are needed"),
        ({"x": FLOATS, "y": FLOATS.astype(int)}, {}, r"its shape is \(4, 3\): for sequences, .* set data.task$"),
        ({"x": FLOATS, "y": np.zeros((4, 2, 2), int)}, {}, r"\(4, 2, 2\): for masks \(segmentation\) set data.task$"),
        ({"x": FLOATS, "y": range(4)}, {"x": ("x", "x")}, "'x' is twice in x"),
    ],
)
def test_wrong_arrays_are_refused_with_file_key_and_row(file, arrays, layout, said):
    path = file(**{name: np.asarray(value) for name, value in arrays.items()})
    with pytest.raises(DataError, match=said) as caught:
        read(path, **layout)
    assert "f.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "layout", "said"),
    [
        (CSV, {"y": "il"}, "no column 'il', perhaps you meant 'ill'"),
        (CSV.replace("72.5", "old"), {"y": "ill", "x": ("age",)}, "line 3, column 'age': 'old' is no number"),
        (CSV.replace("38", ""), {"y": "ill", "x": ("age",)}, "line 5, column 'age': there is no value"),
        (CSV.replace("38", "nan"), {"y": "ill", "x": ("age",)}, "line 5, column 'age': nan is no number"),
        (CSV, {"y": "ill"}, "f.csv: who holds no numbers: name the columns of x in data.arrays.x"),
        (CSV, {"y": "ill", "x": ("age", "ill")}, "'ill' is in x and in y, so networks would read what they are"),
        (CSV, {"y": "age", "x": ("sex",)}, "line 3, column 'age': .* is no label: .* kind = \"regression\""),
        (CSV, {"y": "age"}, "f.csv: who, ill hold no numbers: name the columns of x in data.arrays.x"),
        (CSV, {"y": "ill", "x": ("who",)}, "line 2, column 'who': 'b' is no number"),
        (CSV.replace("yes", ""), {"y": "ill", "group": "who"}, "line 3, column 'ill': there is no label"),
        (CSV.replace("72.5,a", "72.5,"), {"y": "ill", "group": "who"}, "line 3, column 'who': there is no value"),
        (CSV + "1,2\n", {"y": "ill"}, "line 6: there are 2 values for 4 columns"),
        (CSV.replace("sex", "age"), {"y": "ill"}, "line 1: two columns are called 'age'"),
        ("", {}, "the first line must name the columns"),
        ("a,y\n", {}, "there are no rows"),
        ("y\n1\n", {}, "no column is left for x"),
    ],
)
def test_wrong_tables_are_refused_with_file_column_and_line(table, text, layout, said):
    with pytest.raises(DataError, match=said) as caught:
        read(table(text), **layout)
    assert "f.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_python_objects_are_not_read(tmp_path):
    np.save(tmp_path / "f.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"f\.npy: it holds Python objects"):
        read(str(tmp_path / "f.npy"))


def test_layouts_are_for_files_of_ones_own(tmp_path):
    with pytest.raises(DataError, match=r"data\.arrays is for files of one's own; mnist is a known data set"):
        load("mnist", tmp_path, layout=ArrayLayout())
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"say in data\.arrays\.files which files are read"):
        load(f"folder:{tmp_path / 'photos'}", layout=ArrayLayout())


# -- tables as people save them ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"age;weight;ill\n51,3;66,07;1\n", "line 1: values are separated by semicolons: save it with commas"),
        (b"age\tweight\till\n51.3\t66.07\t1\n", "line 1: values are separated by tabs: save it with commas"),
        (b"51.3,66.07,1\n48.2,70.1,0\n", "line 1: 51.3 is a number: the first line must name the columns"),
        (b"age,town,ill\n51,Bonn,1\n48,K\xf6ln,0\n", "line 3 is not UTF-8: save the file as UTF-8"),
        (b"age,weight,ill\n51,,1\n48,70,0\n", "line 2, column 'weight': there is no value"),
        (b"age,weight,ill\n51,NA,1\n48,70,0\n", "line 2, column 'weight': 'NA' is no number"),
        (b"age,weight,ill\n51,66,1\n48,70,\n", "line 3, column 'ill': there is no label"),
        (b"age,weight,ill\n51,66,1,\n", "line 2: there are 4 values for 3 columns"),
    ],
)
def test_a_table_that_is_saved_otherwise_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "people.csv"
    path.write_bytes(text)
    with pytest.raises(DataError) as caught:
        load(str(path), layout=ArrayLayout(y="ill"))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mark_of_byte_order_and_spaces_behind_commas_change_nothing(tmp_path):
    plain = "age,weight,ill\n51,66.5,yes\n48,70.25,no\n"
    (tmp_path / "plain.csv").write_text(plain)
    (tmp_path / "spaced.csv").write_text("\ufeff" + plain.replace(",", ", "), encoding="utf-8")
    one, other = (load(str(tmp_path / f"{name}.csv"), layout=ArrayLayout(y="ill")) for name in ("plain", "spaced"))
    assert np.array_equal(one.train.x, other.train.x)
    assert one.classes == other.classes == ("no", "yes")
    assert np.array_equal(one.train.y, other.train.y)


def test_masks_of_grey_values_are_refused_unless_their_classes_are_named(tmp_path):
    masks = np.zeros((4, 5, 5), np.uint8)
    masks[:, 2:] = 255
    np.savez(tmp_path / "m.npz", x=np.ones((4, 1, 5, 5), np.float32), y=masks)
    said = r"""'y' has the labels 0, 255: number the classes from 0, or set data\.arrays\.classes = \["0", "255"\]$"""
    with pytest.raises(DataError, match=said):
        load(str(tmp_path / "m.npz"), layout=ArrayLayout(task="segmentation"))
    named = load(str(tmp_path / "m.npz"), layout=ArrayLayout(task="segmentation", classes=("0", "255")))
    assert named.classes == ("0", "255")
    assert np.array_equal(named.train.y, (masks > 0).astype(np.int64))
    with pytest.raises(DataError, match="'y' has the label 255, but 2 classes are named"):
        load(str(tmp_path / "m.npz"), layout=ArrayLayout(task="segmentation", classes=("ground", "cell")))
    names = tuple(map(str, range(256)))
    assert load(str(tmp_path / "m.npz"), layout=ArrayLayout(task="segmentation", classes=names)).classes == names
