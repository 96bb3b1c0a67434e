"""Looking sets up by name, plain .npz files, and the texts of errors."""

import pickle

import numpy as np
import pytest
import torch

from heterophony.data import DataError, known, load
from heterophony.data.sources import KNOWN_SETS, require
from heterophony.data.sources.source import Source, empty, split


def arrays(train=6, test=4, side=28, channels=1, labels=10, **more):
    def half(count):
        x = torch.randint(256, (count, side, side, channels), dtype=torch.uint8).numpy()
        return x, np.arange(count) % labels

    (train_x, train_y), (test_x, test_y) = half(train), half(test)
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y} | more


def listing(name, root):
    return next(found for found in known(root) if found.entry.name == name)


def test_a_plain_file_is_read(tmp_path):
    made = arrays()
    np.savez(tmp_path / "mnist.npz", **made)
    source = load("mnist", tmp_path)
    assert source.name == "mnist"
    assert source.classes == tuple("0123456789")
    assert np.array_equal(source.train.x, made["train_x"])
    assert np.array_equal(source.test.y, made["test_y"])
    assert source.train.index.tolist() == list(range(6))
    assert (source.train.base, source.test.base) == ("mnist/train", "mnist/test")


def test_index_classes_and_coarse_labels_come_along(tmp_path):
    more = {
        "train_index": np.arange(10, 16),
        "train_y_coarse": np.zeros(6, np.int64),
        "test_y_coarse": np.ones(4, np.int32),
        "classes": np.array(["a", "b", "c"]),
        "classes_coarse": np.array(["x", "y"]),
    }
    np.savez(tmp_path / "cifar100.npz", **arrays(side=32, channels=3, labels=3, **more))
    source = load("cifar100", tmp_path)
    assert source.train.index.tolist() == [10, 11, 12, 13, 14, 15]
    assert source.test.index.tolist() == [0, 1, 2, 3]
    assert source.classes == ("a", "b", "c")
    assert source.classes_coarse == ("x", "y")
    assert source.test.coarse.dtype == np.int64
    part = source.train.take(np.array([4, 1]))
    assert part.index.tolist() == [14, 11]
    assert part.ids().index.tolist() == [14, 11]
    assert source.train.ids(np.array([0])).base == "cifar100/train"


def test_a_domain_has_everything_in_train(tmp_path):
    x = torch.randint(256, (5, 8, 8, 3), dtype=torch.uint8).numpy()
    np.savez(tmp_path / "pacs64.npz", photo_x=x, photo_y=np.arange(5), sketch_x=x[:2], sketch_y=np.arange(2))
    source = load("pacs/photo", tmp_path)
    assert len(source.train) == 5
    assert len(source.test) == 0
    assert source.test.x.shape == (0, 8, 8, 3)
    assert source.train.base == "pacs/photo/train"
    assert (listing("pacs/photo", tmp_path).train, listing("pacs/sketch", tmp_path).train) == (5, 2)
    with pytest.raises(DataError, match="no array 'cartoon_x'"):
        load("pacs/cartoon", tmp_path)


def test_a_part_of_a_set_keeps_the_identity_of_the_whole(tmp_path):
    np.savez(tmp_path / "fashion-mnist-mini.npz", **arrays(train_index=np.arange(6) * 7))
    assert load("fashion-mnist-mini", tmp_path).train.base == "fashion-mnist/train"
    np.savez(tmp_path / "mnistm.npz", **arrays(side=32, channels=3))
    assert load("mnistm", tmp_path).train.base == "mnist/train"


def test_known_counts_without_decoding(tmp_path, monkeypatch):
    np.savez(tmp_path / "svhn.npz", **arrays(side=32, channels=3))
    np.savez_compressed(tmp_path / "usps.npz", **arrays(side=16, train=9))
    monkeypatch.setattr(np, "load", None)
    found = {one.entry.name: one for one in known(tmp_path)}
    assert set(found) == set(KNOWN_SETS)
    assert (found["svhn"].train, found["svhn"].test) == (6, 4)
    assert found["svhn"].partial
    assert (found["usps"].train, found["usps"].test) == (9, 4)
    assert found["usps"].where == tmp_path / "usps.npz"
    assert not found["mnist"].found
    assert found["digits-embedded"].found
    assert not found["digits-embedded"].partial


def test_known_survives_a_damaged_file(tmp_path):
    (tmp_path / "usps.npz").write_bytes(b"not a zip file")
    assert not listing("usps", tmp_path).found
    assert "usps.npz" in listing("usps", tmp_path).problem


def test_entries_are_complete_and_honest():
    for entry in KNOWN_SETS.values():
        assert entry.summary
        assert entry.terms
        assert entry.readers or entry.npz
        for file in entry.files:
            checksums = [file.md5, *(member.md5 for member in file.members)]
            assert all(md5 is None or len(md5) == 32 for md5 in checksums)
            assert file.url is None or file.url.endswith(f"/{file.name}")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"train_x": np.zeros((6, 28, 28, 1), np.float32)}, "must be uint8"),
        ({"train_x": np.zeros((6, 28), np.uint8)}, "must be uint8 of shape"),
        ({"train_y": np.arange(5)}, "6 images need as many int64 labels"),
        ({"train_y": np.full(6, 10)}, r"every label must be in 0\.\.9, got 10\.\.10"),
        ({"train_y": np.zeros(6)}, "must be integers"),
        ({"train_index": np.zeros(6, np.int64)}, "twice"),
        ({"train_y": np.array([object()] * 6)}, "an array in it holds Python objects"),
        ({"train_y": np.full(6, -1)}, "every label must be 0 or more, got -1: number the classes from 0"),
        (
            {"train_y_coarse": np.arange(6)},
            "coarse label for each image, but no classes: .* `classes_coarse`",
        ),
    ],
)
def test_wrong_arrays_are_refused_in_one_line(tmp_path, change, text):
    np.savez(tmp_path / "mnist.npz", **(arrays() | change))
    with pytest.raises(DataError, match=text) as caught:
        load("mnist", tmp_path)
    assert "mnist.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY", b"x,y\n1,2\n", pickle.dumps([1])])
def test_what_is_no_npz_file_is_named_and_told_so(tmp_path, content):
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"mnist\.npz is not an \.npz file, or is cut short") as caught:
        load("mnist", tmp_path)
    assert "pickle" not in str(caught.value)


def test_labels_without_classes_are_told_so():
    images = split("mine/train", np.zeros((2, 8, 8), np.uint8), np.array([0, 1]))
    with pytest.raises(DataError, match="there is a label for each image, but no classes: give their names"):
        Source("mine", (), images, empty("mine/test", images))


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(
        DataError, match=r"--fetch mnist` or put mnist\.npz or train-images-idx3-ubyte\.gz and .* HETEROPHONY_DATA"
    ):
        load("mnist", tmp_path)
    with pytest.raises(DataError, match=r"a folder office-home/art there"):
        load("office-home/art", tmp_path)
    (tmp_path / "mnist").mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte.gz"):
        (tmp_path / "mnist" / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"put mnist\.npz or t10k-labels-idx1-ubyte\.gz \(in mnist\)"):
        load("mnist", tmp_path)


def test_all_that_is_missing_is_said_at_once(tmp_path):
    with pytest.raises(DataError) as caught:
        require(["mnist", "mnistm", "usps", "mnist", "digits-embedded"], tmp_path)
    text = str(caught.value)
    assert text.startswith(f"mnist, mnistm, usps are not under {tmp_path}: ")
    assert f"`heterophony data --data {tmp_path} --fetch mnist --fetch usps`" in text
    assert "put mnistm.npz or a folder mnistm there" in text
    with pytest.raises(DataError, match=r"pacs/photo, pacs/sketch are .* or a folder pacs with photo, sketch there"):
        require(["pacs/photo", "pacs/sketch"], tmp_path)
    with pytest.raises(DataError, match=r"ud/en, ud/de are not .*: put text-ud10\.jsonl\.gz there, or set"):
        require(["ud/en", "ud/de"], tmp_path)
    np.savez(tmp_path / "usps.npz", **arrays(side=16))
    require(["usps", "digits-embedded"], tmp_path)


# -- one's own -------------------------------------------------------------------------------------------------
def test_a_file_of_ones_own(tmp_path, monkeypatch):
    made = arrays(labels=3)
    (tmp_path / "here").mkdir()
    np.savez(tmp_path / "here" / "mine.npz", **made)
    source = load(str(tmp_path / "here" / "mine.npz"), tmp_path / "nowhere")
    assert source.classes == ("0", "1", "2")
    assert np.array_equal(source.test.x, made["test_x"])
    assert len(load("mine.npz", tmp_path / "here").train) == 6  # in the data folder
    monkeypatch.chdir(tmp_path)
    assert load("here/mine.npz").train.base == source.train.base  # in the current folder


def test_a_file_of_ones_own_may_name_its_classes_and_have_no_test_half(tmp_path):
    path = tmp_path / "mine.v2.npz"
    np.savez(path, train_x=np.zeros((4, 8, 8), np.uint8), train_y=np.array([0, 1, 0, 1]), classes=np.array(["a", "b"]))
    source = load(str(path))
    assert (source.classes, len(source.test)) == (("a", "b"), 0)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"x": np.zeros((2, 8, 8), np.uint8)}, "there is no array 'train_x', only x"),
        ({"train_x": np.zeros((2, 1, 8, 8), np.float32), "train_y": np.arange(2)}, r"uint8 of shape .*, got float32"),
        ({"train_x": np.zeros((2, 8, 8), np.uint8), "train_y": np.arange(3)}, "2 images need as many"),
        ({"train_x": np.zeros((2, 8, 8), np.uint8), "train_y": np.array([0, 10**12])}, "number the classes from 0"),
        (
            {"train_x": np.zeros((3, 8, 8), np.uint8), "train_y": np.array([1, 2, 1])},
            "1 to 2, so class 0 is empty",
        ),
        (
            {"train_x": np.zeros((2, 8, 8), np.uint8), "train_y": np.array([1, 2]), "classes": np.array(["a", "b"])},
            r"every label must be in 0\.\.1, got 1\.\.2",
        ),
        ({"train_x": np.zeros((2, 8, 8), np.uint8), "train_y": np.array([-1, 0])}, "every label must be 0 or more"),
        ({"train_x": np.zeros((0, 8, 8), np.uint8), "train_y": np.arange(0)}, "no rows"),
        (
            {f"{half}_x": np.zeros((n, 8, 8), np.uint8) for half, n in (("train", 0), ("test", 3))}
            | {"train_y": np.arange(0), "test_y": np.arange(3)},
            ": there are no rows to train on",
        ),
    ],
)
def test_wrong_arrays_of_ones_own_are_refused_in_one_line(tmp_path, monkeypatch, made, text):
    np.savez(tmp_path / "mine.npz", **made)
    with pytest.raises(DataError, match=text) as caught:
        load(str(tmp_path / "mine.npz"))
    assert "mine.npz" in str(caught.value)
    (tmp_path / "arrays_of_mine.py").write_text("made = None\ndef get():\n    return made\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("arrays_of_mine.made", made)
    with pytest.raises(DataError, match=text) as caught:
        load("arrays_of_mine:get")
    assert str(caught.value).startswith("arrays_of_mine:get: ")


def test_a_missing_file_of_ones_own_is_said_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=f"no file none.npz beside the TOML file .*, in {tmp_path} or in {tmp_path}/data"
    ):
        load("none.npz", tmp_path / "data")
    with pytest.raises(DataError, match=f"no file {tmp_path}/none.npz$"):
        load(f"{tmp_path}/none.npz")
    with pytest.raises(DataError, match=r"no file ~nobody-at-all/none\.npz beside"):
        load("~nobody-at-all/none.npz", tmp_path / "data")


def test_a_function_is_a_source(tmp_path, monkeypatch):
    (tmp_path / "functions_of_mine.py").write_text(
        "import numpy as np\n"
        "def some():\n"
        "    return {'train_x': np.zeros((4, 8, 8, 3), np.uint8), 'train_y': [0, 1, 2, 0]}\n"
        "def number():\n"
        "    return 3\n"
        "def fails():\n"
        "    raise OSError('no such share')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = load("functions_of_mine:some")
    assert (source.name, source.classes, len(source.train)) == ("functions_of_mine:some", ("0", "1", "2"), 4)
    for name, text in (
        ("number", "gave a int, not a dictionary"),
        ("fails", "call failed .*no such share"),
        ("absent", "does not exist"),
    ):
        with pytest.raises(DataError, match=text):
            load(f"functions_of_mine:{name}")
    with pytest.raises(DataError, match="cannot import module 'nowhere_at_all'"):
        load("nowhere_at_all:some")


def test_wrong_names_are_helped():
    with pytest.raises(
        DataError, match=r"no data set 'zzzz'; `heterophony data` lists .* PATH\.npz, folder:PATH"
    ) as caught:
        load("zzzz")
    assert len(str(caught.value)) < 200
    with pytest.raises(DataError, match="perhaps you meant 'mnist'"):
        load("mnst")
    with pytest.raises(DataError, match="load one of pacs/photo, pacs/art_painting"):
        load("pacs")


def test_a_side_is_only_for_image_files(tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays())
    assert len(load("mnist", tmp_path, side=28).train) == 6
    with pytest.raises(DataError, match="28x28"):
        load("mnist", tmp_path, side=32)
