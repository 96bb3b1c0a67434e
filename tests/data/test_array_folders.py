"""Folders of arrays, whose files a pattern names, and steps in time that are cut into windows."""

import numpy as np
import pytest

from heterophony.data import ArrayLayout, DataError, TimeWindow, load
from heterophony.data.sources.readers import unlabelled

RNG = np.random.default_rng(2)


def read(path, **layout):
    return load(f"folder:{path}", layout=ArrayLayout(**layout))


@pytest.fixture
def save(tmp_path):
    """Writes an array, or arrays by name, at a path below the folder."""

    def put(name, array=None, **arrays):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if array is None:
            np.savez(path, **arrays)
        else:
            np.save(path, np.asarray(array))
        return path

    return put


def rows(number, shape=(3, 4)):
    return RNG.normal(size=(number, *shape)).astype(np.float32)


def test_each_file_holds_the_rows_of_one_user(tmp_path, save):
    held = {name: rows(number) for name, number in (("10", 4), ("9", 1), ("ann", 2))}
    for name, x in held.items():
        save(f"user_{name}.npz", x=x, y=np.arange(len(x)) % 2)
    save("readme.npz", other=np.ones(3))
    save(".user_11.npz", x=rows(1), y=[0])
    source = read(tmp_path, files="user_{user}.npz", group="user")
    assert source.train.groups.tolist() == ["10"] * 4 + ["9"] + ["ann"] * 2
    assert np.array_equal(source.train.x, np.concatenate(list(held.values())))
    assert source.train.y.tolist() == [0, 1, 0, 1, 0, 0, 1]


def test_each_file_is_one_row_whose_folders_tell_the_rest(tmp_path, save):
    held = {name: rows(1)[0] for name in ("a/run/1", "a/sit/1", "b/run/1", "b/run/2")}
    for name, x in held.items():
        save(f"{name}.npy", x)
    source = read(tmp_path, files="{who}/{activity}/*.npy", each_file="row", y="activity", group="who")
    assert np.array_equal(source.train.x, np.stack(list(held.values())))
    assert (source.classes, source.train.y.tolist()) == (("run", "sit"), [0, 1, 0, 0])
    assert source.train.groups.tolist() == ["a", "a", "b", "b"]


def test_a_table_may_be_one_row_whose_columns_are_channels(tmp_path):
    for number in range(3):
        lines = [f"{number},{step / 2}" for step in range(4)]
        (tmp_path / f"{number}_{'ab'[number % 2]}.csv").write_text("\n".join(["u,v", *lines]))
    source = read(tmp_path, files="*_{kind}.csv", each_file="row", x=("u", "v"), y="kind")
    assert (source.train.x.shape, source.train.x.dtype) == ((3, 2, 4), np.float32)
    assert source.train.x[2].tolist() == [[2, 2, 2, 2], [0, 0.5, 1, 1.5]]


def test_train_and_test_lie_in_folders_of_their_own(tmp_path, save):
    held = {f"{half}/{user}": rows(2) for half in ("train", "test") for user in ("a", "b")}
    for name, x in held.items():
        save(f"{name}.npz", x=x, y=[0, 1])
    source = read(tmp_path, files="train/{user}.npz", test_files="test/{user}.npz", group="user")
    assert np.array_equal(source.train.x, np.concatenate([held["train/a"], held["train/b"]]))
    assert np.array_equal(source.test.x, np.concatenate([held["test/a"], held["test/b"]]))
    assert source.test.groups.tolist() == ["a", "a", "b", "b"]


def test_files_are_read_by_name_wherever_the_system_lists_them(tmp_path, save):
    for name in ("c", "a", "b"):
        save(f"{name}.npz", x=rows(1), y=["acb".index(name)])
    assert read(tmp_path, files="{user}.npz").train.y.tolist() == [0, 2, 1]


def test_users_01_and_1_are_two(tmp_path, save):
    for name in ("01", "1"):
        save(f"{name}.npz", x=rows(2), y=[0, 1])
    assert read(tmp_path, files="{user}.npz", group="user").train.groups.tolist() == ["01", "01", "1", "1"]


def test_what_files_are_called_is_no_part_of_x(tmp_path):
    for name in ("1_7", "2_8"):
        (tmp_path / f"{name}.csv").write_text("v,w,y\n1,2,0\n3,4,1\n")
    source = read(tmp_path, files="{site}_{user}.csv", group="user")
    assert source.train.x.shape == (4, 2)
    assert source.train.groups.tolist() == [7, 7, 8, 8]
    assert read(tmp_path, files="{site}_{user}.csv", x=("v", "site")).train.x[:, 1].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"files": "{user}.npz", "group": "who"}, r"there is no array 'who'; there are x, y, user"),
        ({"files": "u_{user}.npz"}, r"no file is called as data\.arrays\.files says, 'u_\{user\}\.npz'"),
        ({"files": "{user}.h5"}, r"data\.arrays\.files must end with one of \.npz"),
        ({"files": "{user}/{user}.npz"}, "must have one name between braces, each once"),
        ({"files": "{the user}.npz"}, "must have one name between braces"),
        ({"files": "{y}.npz"}, r"a\.npz: there is a column 'y', which data\.arrays\.files names too"),
        ({"files": "{user}.npz", "test_files": "test/*.npz"}, "no file is called as data.arrays.files says, 'test/"),
        ({"files": "*.npz", "test_files": "a.npz"}, r"a\.npz: data\.arrays\.files names it as test_files does"),
        ({"files": "{user}.npz", "test_file": "a.npz"}, "test_file is for a file: name test_files"),
    ],
)
def test_wrong_rules_are_refused_in_one_line(tmp_path, save, layout, said):
    save("a.npz", x=rows(2), y=[0, 1])
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, **layout)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def nan_in_row_1():
    made = rows(2)
    made[1, 0, 0] = np.nan
    return made


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"x": rows(2)}, r"b\.npz: there is no array 'y'; there are x"),
        ({"x": rows(2, (3, 5)), "y": [0, 1]}, r"b\.npz: rows of 'x' are \(3, 5\), those of .*a\.npz are \(3, 4\)"),
        ({"x": rows(2).astype(float), "y": [0, 1]}, r"b\.npz: 'x' is float64, in .*a\.npz it is float32"),
        ({"x": rows(2), "y": [0]}, r"b\.npz: 'y' has the shape \(1,\), the file has 2 rows"),
        ({"x": rows(0), "y": []}, r"b\.npz: 'x' has no rows"),
        ({"x": nan_in_row_1(), "y": [0, 1]}, r"b\.npz: row 1, array 'x': nan is no number"),
        ({"x": rows(2), "y": [0.0, 0.5]}, r"b\.npz: row 1, array 'y': 0.5 is no label"),
    ],
)
def test_a_wrong_file_among_others_is_named_with_its_row(tmp_path, save, second, said):
    save("a.npz", x=rows(3), y=np.array([0, 1, 1], dtype=np.asarray(second.get("y", 0)).dtype))
    save("b.npz", **{name: np.asarray(value) for name, value in second.items()})
    with pytest.raises(DataError, match=said) as caught:
        read(tmp_path, files="{user}.npz")
    assert "\n" not in str(caught.value)


def test_lines_of_tables_are_counted_in_their_own_file(tmp_path):
    (tmp_path / "a.csv").write_text("v,y\n1,0\n2,1\n")
    (tmp_path / "b.csv").write_text("v,y\n1,0\n\nold,1\n")
    with pytest.raises(DataError, match=r"b\.csv: line 4, column 'v': 'old' is no number"):
        read(tmp_path, files="{user}.csv", x="v")


# -- windows ---------------------------------------------------------------------------------------------------
@pytest.fixture
def steps(tmp_path):
    """Two files of steps: v counts them, w is v with a sign, the label changes after six."""
    for name, number in (("a", 10), ("b", 7)):
        lines = [f"{step},{-step},{'sit' if step < 6 else 'run'}" for step in range(number)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["v,w,y", *lines]))
    return tmp_path


def windows(path, rows, step=None, label="majority", **layout):
    layout = {"files": "{user}.csv", "group": "user", "x": ("v", "w"), **layout}
    return read(path, window=TimeWindow(rows, step, label), **layout).train


def test_windows_stay_in_their_file_and_what_is_left_over_is_none(steps):
    made = windows(steps, 4)
    assert made.x.shape == (3, 2, 4)  # channels, then time
    assert made.x[:, 0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    assert np.array_equal(made.x[:, 1], -made.x[:, 0])
    assert made.groups.tolist() == ["a", "a", "b"]
    assert not made.overlap


def test_windows_may_overlap(steps):
    made = windows(steps, 4, 3)
    assert made.x[:, 0, 0].tolist() == [0, 3, 6, 0, 3]
    assert made.overlap


@pytest.mark.parametrize(
    ("label", "numbers"),
    [("majority", [1, 0, 1]), ("last", [1, 0, 1])],
)
def test_a_window_of_four_steps_has_one_label(steps, label, numbers):
    made = windows(steps, 4, label=label)  # run is 0, sit is 1; steps 4 to 7 are two of each
    assert made.y.tolist() == numbers


def test_most_steps_or_the_last_step_tell_the_label(steps):
    assert windows(steps, 7, label="majority").y.tolist() == [1, 1]
    assert windows(steps, 7, label="last").y.tolist() == [0, 0]


def test_windows_stay_with_one_user_in_one_file(tmp_path):
    users = [1] * 5 + [2] * 4 + [1] * 2
    np.savez(tmp_path / "f.npz", x=np.arange(11, dtype=np.float32)[:, None], y=[0, 1] * 5 + [0], who=users)
    layout = ArrayLayout(group="who", window=TimeWindow(2))
    made = load(str(tmp_path / "f.npz"), layout=layout).train
    assert made.x[:, 0].tolist() == [[0, 1], [2, 3], [5, 6], [7, 8], [9, 10]]
    assert made.groups.tolist() == [1, 1, 2, 2, 1]


def test_scale_and_axes_are_those_of_windows(steps):
    made = windows(steps, 4, scale=0.5, axes=(0, 2, 1))
    assert made.x.shape == (3, 4, 2)
    assert made.x[1].tolist() == [[2, -2], [2.5, -2.5], [3, -3], [3.5, -3.5]]


@pytest.mark.parametrize(
    ("rows", "group", "said"),
    [
        (8, "user", r"b\.csv: line 2: no stretch of group b from here has the 8 steps of a window"),
        (8, None, r"b\.csv: line 2: no stretch from here has the 8 steps of a window"),
        (99, "user", r"a\.csv: line 2: no stretch of group a"),
    ],
)
def test_a_file_shorter_than_a_window_is_named(steps, rows, group, said):
    with pytest.raises(DataError, match=said):
        windows(steps, rows, group=group)


def test_windows_have_steps():
    with pytest.raises(DataError, match=r"data\.arrays\.window: rows and step must be 1 or more, got 0 and 2"):
        TimeWindow(0, 2)


# -- rows that need no labels ----------------------------------------------------------------------------------
def test_rows_to_predict_lie_as_the_training_rows_did(tmp_path):
    for half, count in (("train", 3), ("test", 2)):
        (tmp_path / half).mkdir()
        for name in "ab":
            np.savetxt(tmp_path / half / f"{name}_{half}.txt", np.arange(4 * count).reshape(count, 4))
    layout = ArrayLayout(x="train/*_train.txt", y="train/y.txt", test_x="test/*_test.txt", test_y="test/y.txt")
    assert unlabelled(tmp_path, layout).shape == (3, 2, 4)
    for path in (tmp_path / "train").iterdir():
        path.unlink()
    assert unlabelled(tmp_path, layout).shape == (2, 2, 4)  # the test half alone
    one = tmp_path / "test" / "a_test.txt"
    with pytest.raises(DataError, match=r"a_test\.txt: training rows were .*train/\*_train\.txt: give their folder"):
        unlabelled(one, layout)


def test_files_that_are_one_row_each_are_predicted_alone_or_together(tmp_path):
    for user in ("ann", "bo"):
        (tmp_path / user).mkdir()
        for number in range(2):
            np.save(tmp_path / user / f"{number}.npy", np.ones((3, 8), np.float32))
    layout = ArrayLayout(files="{user}/*.npy", each_file="row", y="user")
    assert unlabelled(tmp_path, layout).shape == (4, 3, 8)
    assert unlabelled(tmp_path / "ann" / "0.npy", layout).shape == (1, 3, 8)
