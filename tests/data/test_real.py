"""The real data sets, where they are on hand: published counts, known pictures, official files."""

import struct

import numpy as np
import pytest

from heterophony.data import Dirichlet, Shards, load, to_tensor
from heterophony.data.sources import KNOWN_SETS

MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
USPS = [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]


@pytest.mark.parametrize("name", [name for name, entry in KNOWN_SETS.items() if entry.npz])
def test_a_real_set_is_sound(real, name):
    source = real(name)
    assert len(source.train) > 0
    assert set(source.train.y.tolist()) == set(range(len(source.classes)))
    assert source.train.x.min() == 0
    assert source.train.x.max() == 255
    assert source.train.index.max() < (KNOWN_SETS[name].counts or (10**9, 0))[0]
    whole = KNOWN_SETS[name].counts
    if whole and len(source.train) == whole[0]:
        assert np.array_equal(source.train.index, np.arange(whole[0]))


@pytest.mark.parametrize("name", [name for name in KNOWN_SETS if name.startswith(("ud/", "sib200/"))])
def test_real_text_is_sound(real, name):
    source = real(name)
    assert len(source.test) > 100
    assert all(bytes(row).strip(b"\0") for row in source.train.x)
    if name.startswith("sib200/"):
        assert (len(source.train), len(source.test)) == KNOWN_SETS[name].counts
        assert set(source.train.y.tolist()) == set(range(7))
        english = load("sib200/eng_Latn").train
        assert np.array_equal(source.train.index, english.index)
        assert np.array_equal(source.train.y, english.y)


def test_mnist_counts_and_official_files(real, tmp_path):
    mnist = real("mnist")
    assert np.bincount(mnist.train.y).tolist() == MNIST
    (tmp_path / "mnist").mkdir()
    for stem, half in (("train", mnist.train), ("t10k", mnist.test)):
        images = struct.pack(">4I", 0x803, len(half), 28, 28) + half.x.tobytes()
        labels = struct.pack(">2I", 0x801, len(half)) + half.y.astype(np.uint8).tobytes()
        (tmp_path / "mnist" / f"{stem}-images-idx3-ubyte").write_bytes(images)
        (tmp_path / "mnist" / f"{stem}-labels-idx1-ubyte").write_bytes(labels)
    # These are the official bytes: their checksums are those of the entry.
    official = load("mnist", tmp_path)
    assert np.array_equal(official.train.x, mnist.train.x)
    assert np.array_equal(official.test.y, mnist.test.y)


def test_fml_shards_of_mnist(real):
    labels = real("mnist").train.y
    held = [set(labels[part].tolist()) for part in Shards(2).split(labels, 5, np.random.default_rng(0))]
    assert sum(len(own) for own in held) == 10


def test_cifar_counts(real):
    ten = real("cifar10")
    assert np.bincount(ten.train.y).tolist() == [5000] * 10
    assert ten.classes[:3] == ("airplane", "automobile", "bird")
    parts = Dirichlet(0.1, min_size=10).split(ten.train.y, 20, np.random.default_rng(0))
    assert sum(map(len, parts)) == 50_000


def test_cifar100_groups(real):
    hundred = real("cifar100")
    assert np.bincount(hundred.train.y).tolist() == [500] * 100
    assert np.bincount(hundred.test.coarse).tolist() == [500] * 20
    assert len(hundred.classes_coarse) == 20
    # Five fine classes make a coarse one, and each belongs to only one.
    pairs = set(zip(hundred.train.y.tolist(), hundred.train.coarse.tolist(), strict=True))
    assert len(pairs) == 100


def test_usps_counts(real):
    assert np.bincount(real("usps").train.y).tolist() == USPS


def test_mnist_m_rows_are_mnist_rows(real):
    mnist, blended = real("mnist"), real("mnistm")
    for plain, own in ((mnist.train, blended.train), (mnist.test, blended.test)):
        assert np.array_equal(plain.y[own.index], own.y)
        assert plain.base == own.base


def test_pacs_counts(real):
    for name, count in (("photo", 1670), ("art_painting", 2048), ("cartoon", 2344), ("sketch", 3929)):
        source = real(f"pacs/{name}")
        assert len(source.train) == count
        assert source.classes[0] == "dog"


def test_all_digit_sets_fit_one_model(real):
    for name in ("mnist", "usps", "svhn", "mnistm"):
        x = to_tensor(real(name).train.x[:64], side=32, channels=3)
        assert x.shape == (64, 3, 32, 32)
        assert x.min() >= -1 - 1e-5
        assert x.max() <= 1 + 1e-5
