"""Each official format, from tiny files that are written here in that very form."""

import bz2
import gzip
import hashlib
import io
import pickle
import struct
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from heterophony.data import DataError, known, load
from heterophony.data.sources import KNOWN_SETS, File, PackedFile, read


def pixels(*shape):
    return torch.randint(256, shape, dtype=torch.uint8).numpy()


def labels_of(count):
    return torch.randint(10, (count,)).numpy()


def md5(data):
    return hashlib.md5(data).hexdigest()


def grey(count, side=28):
    return pixels(count, side, side), labels_of(count)


def colour(count, side=32):
    return pixels(count, side, side, 3), labels_of(count)


# MNIST and Fashion-MNIST


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def idx_files(train, test):
    (train_x, train_y), (test_x, test_y) = train, test
    return {
        "train-images-idx3-ubyte": idx(train_x),
        "train-labels-idx1-ubyte": idx(train_y),
        "t10k-images-idx3-ubyte": idx(test_x),
        "t10k-labels-idx1-ubyte": idx(test_y),
    }


def unchecked(name):
    """The entry without checksums, since the files of these tests are not the official ones."""
    entry = KNOWN_SETS[name]
    files = [File(f.name, members=tuple(PackedFile(m.name) for m in f.members)) for f in entry.files]
    return replace(entry, files=tuple(files))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx(tmp_path, name, packed):
    train, test = grey(5), grey(3)
    entry = unchecked(name)
    place = tmp_path / entry.folders[packed]
    place.mkdir(parents=True)
    for file, data in idx_files(train, test).items():
        (place / (f"{file}.gz" if packed else file)).write_bytes(gzip.compress(data) if packed else data)
    source = read(entry, tmp_path)
    assert np.array_equal(source.train.x[..., 0], train[0])
    assert np.array_equal(source.train.y, train[1])
    assert np.array_equal(source.test.x[..., 0], test[0])
    assert np.array_equal(source.test.y, test[1])
    assert source.test.base == f"{name}/test"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (idx(np.zeros((2, 3, 3)))[:-1], "18 bytes, there are 17"),
        (idx(np.zeros((2, 3, 3))) + b"\0", "18 bytes, there are 19"),
        (idx(np.zeros(20)), "begins with 0x0803"),
        (b"\0\0", "cannot be read"),
    ],
)
def test_damaged_idx(tmp_path, data, text):
    (tmp_path / "mnist").mkdir()
    for file, good in (idx_files(grey(2), grey(2)) | {"train-images-idx3-ubyte": data}).items():
        (tmp_path / "mnist" / file).write_bytes(good)
    with pytest.raises(DataError, match=text) as caught:
        read(unchecked("mnist"), tmp_path)
    assert "train-images-idx3-ubyte" in str(caught.value)


def test_damaged_gzip(tmp_path):
    (tmp_path / "mnist").mkdir()
    for file, data in idx_files(grey(2), grey(2)).items():
        (tmp_path / "mnist" / f"{file}.gz").write_bytes(gzip.compress(data)[:-9])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        read(unchecked("mnist"), tmp_path)


def test_official_files_are_checked_before_they_are_read(tmp_path):
    (tmp_path / "mnist").mkdir()
    for file, data in idx_files(grey(2), grey(2)).items():
        (tmp_path / "mnist" / file).write_bytes(data)
    with pytest.raises(DataError, match=r"is not the official file .* expected 6bbc9ace898e44ae57da46a324031adb"):
        load("mnist", tmp_path)


# CIFAR


class Python2Pickler(pickle._Pickler):
    """Writes byte strings as Python 2 did, like the official batches."""

    def save_string(self, data):
        short = len(data) < 256
        self.write(
            pickle.SHORT_BINSTRING + bytes([len(data)]) if short else pickle.BINSTRING + struct.pack("<i", len(data))
        )
        self.write(data)
        self.memoize(data)

    dispatch = {**pickle._Pickler.dispatch, bytes: save_string}


def python2(content):
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(content)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def python3(content):
    return pickle.dumps({key.decode(): value for key, value in content.items()}, protocol=2)


def planes(images):
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def cifar10_files(write, train, test):
    batches = {f"data_batch_{i + 1}": rows for i, rows in enumerate(np.array_split(np.arange(len(train[0])), 5))}
    files = {
        name: write({b"data": planes(train[0][rows]), b"labels": train[1][rows].tolist(), b"batch_label": b"x"})
        for name, rows in batches.items()
    }
    files["test_batch"] = write({b"data": planes(test[0]), b"labels": test[1].tolist()})
    files["batches.meta"] = write({b"label_names": [f"class {i}".encode() for i in range(10)]})
    return files


def cifar100_files(write, train, test):
    def batch(half):
        coarse = (half[1] // 5).tolist()
        return write({b"data": planes(half[0]), b"fine_labels": half[1].tolist(), b"coarse_labels": coarse})

    fine, coarse = ([f"{kind} {i}".encode() for i in range(n)] for kind, n in (("fine", 100), ("coarse", 20)))
    meta = write({b"fine_label_names": fine, b"coarse_label_names": coarse})
    return {"train": batch(train), "test": batch(test), "meta": meta}


def cifar_entry(name, files, archive=b""):
    """The entry with the checksums of the files of this test."""
    (file,) = KNOWN_SETS[name].files
    members = tuple(replace(m, md5=md5(files[m.name.rpartition("/")[2]])) for m in file.members)
    return replace(KNOWN_SETS[name], files=(replace(file, md5=md5(archive), members=members),))


def lay_out(tmp_path, entry, files):
    for member in entry.files[0].members:
        path = tmp_path / member.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(files[member.name.rpartition("/")[2]])


@pytest.mark.parametrize("write", [python2, python3])
@pytest.mark.parametrize(("name", "make"), [("cifar10", cifar10_files), ("cifar100", cifar100_files)])
def test_cifar_unpacked(tmp_path, name, make, write):
    train, test = colour(7), colour(3)
    files = make(write, train, test)
    entry = cifar_entry(name, files)
    lay_out(tmp_path, entry, files)
    source = read(entry, tmp_path)
    assert np.array_equal(source.train.x, train[0])
    assert np.array_equal(source.train.y, train[1])
    assert np.array_equal(source.test.x, test[0])
    assert np.array_equal(source.test.y, test[1])
    assert source.classes[3] == ("class 3" if name == "cifar10" else "fine 3")
    if name == "cifar100":
        assert source.classes_coarse[19] == "coarse 19"
        assert np.array_equal(source.test.coarse, test[1] // 5)


def test_cifar_archive(tmp_path):
    train, test = colour(5), colour(2)
    files = cifar10_files(python2, train, test)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    entry = cifar_entry("cifar10", files, packed.getvalue())
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz").write_bytes(packed.getvalue())
    assert np.array_equal(read(entry, tmp_path).train.x, train[0])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["cifar-10-python.tar.gz"]
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz is not the official file"):
        load("cifar10", tmp_path)


class Trap:
    """Runs code when it is unpickled in the usual way."""

    def __reduce__(self):
        return (exec, ("import sys; sys.trapped = True",))


def test_a_malicious_pickle_is_refused_by_its_checksum_and_by_the_reader(tmp_path):
    files = cifar100_files(python2, colour(2), colour(2))
    honest = cifar_entry("cifar100", files)
    files["train"] = pickle.dumps({"data": Trap()})
    lay_out(tmp_path, honest, files)
    with pytest.raises(DataError, match="is not the official file"):
        read(honest, tmp_path)
    # Even where the checksum was forged, nothing runs.
    with pytest.raises(DataError, match=r"asks for builtins\.exec"):
        read(cifar_entry("cifar100", files), tmp_path)
    assert not hasattr(sys, "trapped")


# SVHN, synthetic digits, USPS


def mat(images, digits):
    import scipy.io

    stream = io.BytesIO()
    # MATLAB counts from one: the digit zero is class ten.
    labels = np.where(digits == 0, 10, digits).astype(np.uint8)[:, None]
    scipy.io.savemat(stream, {"X": images.transpose(1, 2, 3, 0), "y": labels}, do_compression=True)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["svhn", "syn"])
def test_mat(tmp_path, name):
    pytest.importorskip("scipy")
    train, test = (pixels(12, 32, 32, 3), np.arange(12) % 10), colour(3)
    entry = unchecked(name)
    (tmp_path / name).mkdir()
    for file, half in zip(entry.files, (train, test), strict=True):
        (tmp_path / name / file.name).write_bytes(mat(*half))
    source = read(entry, tmp_path)
    assert np.array_equal(source.train.x, train[0])
    assert np.array_equal(source.train.y, train[1])
    assert np.array_equal(source.test.x, test[0])
    if name == "svhn":
        with pytest.raises(DataError, match=r"train_32x32\.mat is not the official file"):
            load(name, tmp_path)


def test_mat_without_scipy_gives_a_hint(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"train_32x32\.mat \(svhn\) needs scipy: pip install 'heterophony\[data\]'"):
        load("svhn", tmp_path)


def test_damaged_mat(tmp_path):
    pytest.importorskip("scipy")
    for name in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / name).write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(DataError, match=r"train_32x32\.mat cannot be read"):
        read(unchecked("svhn"), tmp_path)


def libsvm(images, digits):
    lines = []
    for image, digit in zip(images, digits, strict=True):
        values = image.reshape(-1) / 127.5 - 1
        lines.append(" ".join([str(digit + 1), *(f"{i + 1}:{v:.6f}" for i, v in enumerate(values))]))
    return bz2.compress(("\n".join(lines) + "\n").encode())


def test_libsvm(tmp_path):
    train, test = grey(4, 16), grey(2, 16)
    (tmp_path / "usps.bz2").write_bytes(libsvm(*train))
    (tmp_path / "usps.t.bz2").write_bytes(libsvm(*test))
    source = read(unchecked("usps"), tmp_path)
    assert np.abs(source.train.x[..., 0].astype(int) - train[0]).max() <= 1
    assert np.array_equal(source.train.y, train[1])
    assert np.array_equal(source.test.y, test[1])
    (tmp_path / "usps.bz2").write_bytes(bz2.compress(b"3 1:0.5 2:0.5\n"))
    with pytest.raises(DataError, match=r"usps\.bz2: every line must hold a label and 256 values"):
        read(unchecked("usps"), tmp_path)
    (tmp_path / "usps.bz2").write_bytes(bz2.compress(b""))
    with pytest.raises(DataError, match=r"usps\.bz2"):
        read(unchecked("usps"), tmp_path)


# Folders of image files


def picture(path, shade, size=(9, 7)):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, shade).save(path)


def test_pacs_folders(tmp_path):
    pytest.importorskip("PIL")
    for number in (2, 1):
        picture(tmp_path / "PACS" / "art_painting" / "dog" / f"pic_{number}.png", (number, 0, 0))
    picture(tmp_path / "PACS" / "art_painting" / "person" / "pic_1.PNG", (9, 8, 7), (30, 40))
    (tmp_path / "PACS" / "art_painting" / "person" / "notes.txt").write_text("no image")
    source = load("pacs/art_painting", tmp_path)
    assert source.train.x.shape == (3, 64, 64, 3)
    assert source.train.y.tolist() == [0, 0, 6]
    assert source.train.x[:, 5, 5].tolist() == [[1, 0, 0], [2, 0, 0], [9, 8, 7]]
    assert load("pacs/art_painting", tmp_path, side=20).train.x.shape == (3, 20, 20, 3)
    counts = {one.entry.name: one.train for one in known(tmp_path) if one.found}
    assert counts["pacs/art_painting"] == 3
    assert "pacs/photo" not in counts


def test_office_home_labels_agree_between_domains(tmp_path):
    pytest.importorskip("PIL")
    place = tmp_path / "OfficeHomeDataset_10072016"
    picture(place / "Art" / "Alarm_Clock" / "1.jpg", (0, 0, 0))
    picture(place / "Art" / "Bike" / "1.jpg", (0, 0, 0))
    # This domain lacks the first class, which must not shift the labels of the others.
    picture(place / "Real World" / "Bike" / "1.jpg", (0, 0, 0))
    source = load("office-home/real_world", tmp_path)
    assert source.classes == ("Alarm_Clock", "Bike")
    assert source.train.y.tolist() == [1]
    assert source.train.base == "office-home/real_world/train"


def test_synthetic_digits_as_folders(tmp_path):
    pytest.importorskip("PIL")
    for digit in (0, 7):
        picture(tmp_path / "syn" / "imgs_train" / str(digit) / "a.png", (digit, 0, 0), (32, 32))
    picture(tmp_path / "syn" / "imgs_valid" / "7" / "a.png", (7, 0, 0), (32, 32))
    source = load("syn", tmp_path)
    assert source.train.y.tolist() == [0, 7]
    assert source.test.y.tolist() == [7]
    found = next(one for one in known(tmp_path) if one.entry.name == "syn")
    assert (found.train, found.test) == (2, 1)


def test_mnist_m_as_listed_files(tmp_path):
    pytest.importorskip("PIL")
    for half, rows in (("train", {3: 5, 8: 1}), ("test", {2: 4})):
        for row in rows:
            picture(tmp_path / "mnist_m" / f"mnist_m_{half}" / f"{row:08}.png", (row, 1, 2), (32, 32))
        lines = "".join(f"{row:08}.png {digit}\n" for row, digit in rows.items())
        (tmp_path / "mnist_m" / f"mnist_m_{half}_labels.txt").write_text(lines)
    source = load("mnistm", tmp_path)
    assert source.train.index.tolist() == [3, 8]
    assert source.train.y.tolist() == [5, 1]
    assert source.train.x[:, 0, 0, 0].tolist() == [3, 8]
    assert source.test.index.tolist() == [2]
    found = next(one for one in known(tmp_path) if one.entry.name == "mnistm")
    assert (found.train, found.test, found.partial) == (2, 1, True)
    (tmp_path / "mnist_m" / "mnist_m_test_labels.txt").write_text("only-a-name.png\n")
    with pytest.raises(DataError, match=r"mnist_m_test_labels\.txt cannot be read"):
        load("mnistm", tmp_path)


def test_any_folder_of_images(tmp_path):
    pytest.importorskip("PIL")
    for number in (2, 1):
        picture(tmp_path / "mine" / "cats" / f"{number}.jpeg", (number, 0, 0))
    picture(tmp_path / "mine" / "dogs" / "a.JPEG", (9, 9, 9), (30, 40))
    source = load("folder:mine", tmp_path)
    assert source.classes == ("cats", "dogs")
    assert source.train.y.tolist() == [0, 0, 1]
    assert source.train.x.shape == (3, 64, 64, 3)
    assert len(source.test) == 0
    elsewhere = load(f"folder:{tmp_path / 'mine' / 'cats'}", tmp_path / "nowhere")
    assert (elsewhere.classes, len(elsewhere.train)) == (("image",), 2)
    assert elsewhere.train.base != source.train.base
    with pytest.raises(DataError, match=f"there is no folder absent beside the TOML file .* or in {tmp_path}"):
        load("folder:absent", tmp_path)
    with pytest.raises(DataError, match=f"there is no folder {tmp_path / 'absent'}$"):
        load(f"folder:{tmp_path / 'absent'}", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images in"):
        load("folder:empty", tmp_path)


def test_damaged_images_and_a_missing_pillow(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    broken = tmp_path / "pacs" / "photo" / "dog" / "broken.jpg"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.jpg cannot be read"):
        load("pacs/photo", tmp_path)
    broken.unlink()
    with pytest.raises(DataError, match="no images in folders named dog, elephant, giraffe"):
        load("pacs/photo", tmp_path)
    picture(broken, (0, 0, 0))
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=r"reading image files needs pillow: pip install 'heterophony\[data\]'"):
        load("pacs/photo", tmp_path)
