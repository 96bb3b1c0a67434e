"""Looking sets up by name, plain .npz files, and the texts of errors."""

import numpy as np
import pytest

from heterophony.data import DataError, known, load
from heterophony.data.sources import ENTRIES

RNG = np.random.default_rng(0)


def arrays(train=6, test=4, side=28, channels=1, labels=10, **more):
    def half(count):
        x = RNG.integers(0, 256, (count, side, side, channels), dtype=np.uint8)
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
    x = RNG.integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
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
    assert set(found) == set(ENTRIES)
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
    for entry in ENTRIES.values():
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
        ({"train_y": np.array([object()] * 6)}, "allow_pickle"),
    ],
)
def test_wrong_arrays_are_refused_in_one_line(tmp_path, change, text):
    np.savez(tmp_path / "mnist.npz", **(arrays() | change))
    with pytest.raises(DataError, match=text) as caught:
        load("mnist", tmp_path)
    assert "mnist.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"mnist\.npz"):
        load("mnist", tmp_path)


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(DataError, match=r"put mnist\.npz or train-images-idx3-ubyte\.gz and .* HETEROPHONY_DATA"):
        load("mnist", tmp_path)
    with pytest.raises(DataError, match=r"a folder office-home/art there"):
        load("office-home/art", tmp_path)
    (tmp_path / "mnist").mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte.gz"):
        (tmp_path / "mnist" / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"put mnist\.npz or t10k-labels-idx1-ubyte\.gz \(in mnist\)"):
        load("mnist", tmp_path)


def test_wrong_names_are_helped():
    with pytest.raises(DataError, match="perhaps you meant 'mnist'"):
        load("mnst")
    with pytest.raises(DataError, match="load one of pacs/photo, pacs/art_painting"):
        load("pacs")


def test_a_side_is_only_for_image_files(tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays())
    assert len(load("mnist", tmp_path, side=28).train) == 6
    with pytest.raises(DataError, match="28x28"):
        load("mnist", tmp_path, side=32)
