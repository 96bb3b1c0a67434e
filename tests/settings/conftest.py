"""Shared by the settings tests: small made-up sets under real names, and real sets where they are on hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from heterophony.data import known


@pytest.fixture
def store(tmp_path) -> Callable[..., Path]:
    """Writes a set of random images as NAME.npz and returns the data folder."""

    def put(name, train=60, test=30, shape=(16, 16, 1), classes=10, names=(), **more) -> Path:
        rng = np.random.default_rng(len(list(tmp_path.iterdir())))
        arrays = {}
        for half, count in (("train", train), ("test", test)):
            if count:
                arrays[f"{half}_x"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
                arrays[f"{half}_y"] = np.arange(count) % classes
        if names:
            arrays["classes"] = np.array(names)
        np.savez(tmp_path / f"{name}.npz", **arrays, **more)
        return tmp_path

    return put


@pytest.fixture
def need() -> Callable[..., None]:
    """Skips the test where HETEROPHONY_DATA does not hold these sets."""

    def check(*names) -> None:
        found = {listing.entry.name for listing in known() if listing.found}
        if missing := set(names) - found:
            pytest.skip(f"{', '.join(sorted(missing))} not under the data folder")

    return check
