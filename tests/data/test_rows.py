"""Data sets that are asked for their rows one by one: torch's, and those that Hugging Face `datasets` saved."""

import importlib.util

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from heterophony.data import ArrayLayout, Data, DataError, load, rows
from heterophony.data.sources import saved_dataset


class Rows(Dataset):
    """A data set of the given rows."""

    def __init__(self, *held):
        self.held = held

    def __len__(self):
        return len(self.held)

    def __getitem__(self, number):
        row = self.held[number]
        if row is None:
            raise OSError("the disk is\ngone")
        return row


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.ones(2), 0


X = torch.arange(24.0).reshape(4, 2, 3)
PAIRS = TensorDataset(X, torch.tensor([0, 1, 1, 0]))


# -- torch -----------------------------------------------------------------------------------------------------
@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module with a function `held` and returns the function's name."""

    def put(name, body):
        head = "import torch\nfrom torch.utils.data import TensorDataset\n\nX = torch.arange(24.0).reshape(4, 2, 3)\n"
        (tmp_path / f"{name}.py").write_text(head + body)
        return f"{name}:held"

    monkeypatch.syspath_prepend(tmp_path)
    return put


def test_a_function_may_return_a_torch_data_set(module):
    source = load(module("sets_a", "def held():\n    return TensorDataset(X, torch.tensor([0, 1, 1, 0]))\n"))
    assert np.array_equal(source.train.x, X.numpy())
    assert (source.train.kind, source.train.y.tolist(), len(source.test)) == ("arrays", [0, 1, 1, 0], 0)


def test_a_function_may_return_two_halves_with_groups(module):
    body = "def half(at):\n    return [dict(x=X[i], y=i % 2, who='ab'[i // 2]) for i in at]\n\n"
    body += "class Held(torch.utils.data.Dataset):\n"
    body += "    def __init__(self, at):\n        self.rows = half(at)\n"
    body += "    def __len__(self):\n        return len(self.rows)\n"
    body += "    def __getitem__(self, i):\n        return self.rows[i]\n\n"
    body += "def held():\n    return {'train': Held([0, 1, 2]), 'test': Held([2, 3])}\n"
    name = module("sets_b", body)
    layout = ArrayLayout(group="train_who", test_group="test_who")
    source = load(name, layout=layout)
    assert (len(source.train), len(source.test)) == (3, 2)
    assert (source.train.groups.tolist(), source.test.groups.tolist()) == (["a", "a", "b"], ["b", "b"])
    assert np.array_equal(source.test.x, X[2:].numpy())


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("sets_c", "def held():\n    return [1, 2]\n", "the call gave a list, not a dictionary .* or a torch Dataset"),
        (
            "sets_d",
            "def held():\n    return {'first': TensorDataset(X, X)}\n",
            "data sets must be called train and test, got first",
        ),
        (
            "sets_e",
            "def held():\n    return {'train': TensorDataset(X), 'test': TensorDataset(X)}\n",
            r"sets_e:held: the train half: row 0: a row is \(x, y\), .* got 1 values",
        ),
    ],
)
def test_what_is_no_data_set_is_refused(module, name, body, said):
    with pytest.raises(DataError, match=said):
        load(module(name, body))


ONE, TWO = (torch.ones(3), 0), (torch.ones(2), 1)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Stream(), "Stream cannot be asked for a row by its number"),
        (DataLoader(PAIRS), "a DataLoader gives batches: give the data set itself"),
        (Rows(), "the data set is empty"),
        (Rows(ONE, ONE, TWO), r"row 2: x has the shape \(2,\), that of the first row is \(3,\)"),
        (Rows(ONE, None), "row 1: the data set raised OSError: the disk is gone"),
        (Rows(ONE, {"x": 1, "y": 2, "z": 3}), "row 1: it has x, y, z, the first row has x, y"),
        (Rows(ONE, "text"), r"row 1: a row is \(x, y\), \(x, y, group\) or a dictionary, got str"),
        (Rows((object(), 1)), "row 0: x is a object, not numbers or a text"),
        (Rows(([[1, 2], [3]], 1)), "row 0: x is no array"),
    ],
)
def test_wrong_rows_are_named(dataset, said):
    with pytest.raises(DataError, match=said) as caught:
        rows.columns(dataset)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Stream(), "Stream cannot be asked for a row by its number"),
        (Rows(ONE, TWO), r"row 1: the input has the shape \(2,\), that of the first row is \(3,\)"),
        (Rows(ONE, (torch.ones(3), 1.5)), "row 1: the label 1.5 is no whole number"),
        (Rows(ONE, (torch.ones(3), None)), "row 1: the label None is no whole number"),
        (Rows((torch.ones(3), 0, 1)), "row 0: it must be an .input, label. pair, got tuple"),
    ],
)
def test_a_federation_in_python_hears_of_wrong_rows_too(dataset, said):
    with pytest.raises(ValueError, match=said):
        Data.of(dataset)


# -- Hugging Face ----------------------------------------------------------------------------------------------
def test_without_the_library_a_saved_folder_says_what_to_install(tmp_path):
    if importlib.util.find_spec("datasets"):
        pytest.skip("datasets is installed")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(DataError, match=r"reading it needs datasets: pip install 'heterophony\[hf\]'$"):
        load(f"folder:{tmp_path}")


@pytest.fixture
def saved(tmp_path):
    """A folder with the splits train and test, and one without splits. Returns their parent."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "wave": datasets.Array2D((2, 3), "float32"),
            "bytes": datasets.Array2D((2, 3), "uint8"),
            "ragged": datasets.Sequence(datasets.Value("float32")),
            "age": datasets.Value("int64"),
            "exact": datasets.Value("float64"),
            "who": datasets.Value("string"),
            "mood": datasets.ClassLabel(names=["calm", "sad", "wild"]),
        }
    )
    held = {
        "wave": X.numpy(),
        "bytes": X.numpy().astype(np.uint8),
        "ragged": [[1], [1, 2], [1], [1]],
        "age": [30, 40, None, 60],
        "exact": [1 / 3] * 4,
        "who": list("abba"),
        "mood": [0, 1, 1, 0],
    }
    whole = datasets.Dataset.from_dict(held, features=features)
    datasets.DatasetDict(train=whole, test=whole.select([1, 3]), later=whole.select([0])).save_to_disk(tmp_path / "d")
    whole.save_to_disk(tmp_path / "one")
    return tmp_path


def of(path, **layout):
    return load(f"folder:{path}", layout=ArrayLayout(**{"x": "wave", "y": "mood", **layout}))


def test_splits_and_names_of_classes_come_from_the_saved_folder(saved):
    source = of(saved / "d", group="who")
    assert np.array_equal(source.train.x, X.numpy())
    assert np.array_equal(source.test.x, X[[1, 3]].numpy())
    assert source.classes == ("calm", "sad", "wild")
    assert source.train.y.tolist() == [0, 1, 1, 0]
    assert source.train.groups.tolist() == list("abba")
    assert len(of(saved / "d", test_split="later").test) == 1
    assert (len(of(saved / "d", train_split="later").train), len(of(saved / "one").test)) == (1, 0)


def test_numbers_keep_the_type_that_they_were_saved_with(saved):
    columns = saved_dataset.halves(saved / "one", None, None)[0]
    types = {name: columns.get(name).dtype.name for name in ("wave", "bytes", "exact", "mood")}
    assert types == {"wave": "float32", "bytes": "uint8", "exact": "float64", "mood": "int64"}
    assert columns.get("exact")[0] == 1 / 3


@pytest.mark.parametrize(
    ("folder", "layout", "said"),
    [
        ("d", {"train_split": "first"}, r"there is no split 'first', only train, test, later: set .*train_split"),
        ("d", {"test_split": "last"}, r"there is no split 'last', .*test_split"),
        ("d", {"test_split": "train"}, r"'train' is train_split and test_split, so it would be trained on too"),
        ("one", {"test_split": "test"}, "it has no splits"),
        ("d", {"y": "mod"}, r"train: there is no column 'mod', perhaps you meant 'mood'"),
        ("d", {"x": "age"}, r"train: row 2, column 'age': nan is no number"),
        ("d", {"x": "who"}, r"column 'who': 'a' is no number"),
        ("d", {"x": "ragged"}, r"row 1, column 'ragged' has the shape \(2,\), the first row has \(1,\)"),
        ("d", {"x": "bytes"}, "'bytes' is uint8, networks read float32"),
        ("d", {"files": "*.npy"}, "files is for folders of files"),
    ],
)
def test_what_is_wrong_in_a_saved_folder_is_said_with_its_split(saved, folder, layout, said):
    with pytest.raises(DataError, match=said) as caught:
        of(saved / folder, **layout)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
