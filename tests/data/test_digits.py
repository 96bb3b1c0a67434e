"""The digits that come with the package."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from heterophony.data import digits as digits_module
from heterophony.data import load
from heterophony.data.root import find

HERE = Path(digits_module.__file__).parent


def test_a_thousand_digits_a_hundred_of_each(tmp_path):
    source = load("digits-embedded", tmp_path)
    assert source.train.x.shape == (1000, 28, 28, 1)
    assert np.bincount(source.train.y).tolist() == [100] * 10
    assert len(source.test) == 0
    # They look like digits: dark corners, some bright strokes.
    assert source.train.x[:, 0, 0].max() == 0
    assert source.train.x.reshape(1000, -1).max(1).min() > 200


def test_the_file_is_small_and_its_terms_are_beside_it():
    assert (HERE / "digits.npz").stat().st_size < 400_000
    assert "CC BY-SA 3.0" in (HERE / "DIGITS.md").read_text()


def test_they_are_the_first_of_each_class_of_mnist(real):
    mnist, source = real("mnist"), load("digits-embedded")
    assert np.array_equal(mnist.train.x[source.train.index], source.train.x)
    assert np.array_equal(mnist.train.y[source.train.index], source.train.y)
    assert source.train.base == mnist.train.base
    for digit in range(10):
        own = source.train.index[source.train.y == digit]
        assert np.array_equal(own, np.flatnonzero(mnist.train.y == digit)[:100])


def test_the_script_makes_the_same_arrays(real, tmp_path):
    real("mnist")
    plain = find("mnist")
    script = Path(__file__).resolve().parents[2] / "tools" / "make_digits.py"
    out = tmp_path / "digits.npz"
    subprocess.run([sys.executable, script, plain, out], check=True, capture_output=True, timeout=60)
    with np.load(out) as made, np.load(HERE / "digits.npz") as kept:
        assert all(np.array_equal(made[key], kept[key]) for key in ("x", "y", "index"))
