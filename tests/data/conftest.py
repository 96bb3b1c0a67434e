"""Shared by the data tests: one torch thread, and real data where they are on hand."""

from collections.abc import Callable

import pytest
import torch

from heterophony.data import Source, known, load

torch.set_num_threads(1)


@pytest.fixture
def real() -> Callable[[str], Source]:
    """Loads a real set, or skips the test where HETEROPHONY_DATA does not hold it."""

    def get(name: str) -> Source:
        if not any(listing.found for listing in known() if listing.entry.name == name):
            pytest.skip(f"{name} is not under the data folder")
        return load(name)

    return get
