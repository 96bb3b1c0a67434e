"""What holds for every test: one torch thread, a seed of its own, the toys on the path, patience on slow machines."""

import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
import torch

with suppress(ImportError):  # the tests of a GPU do without
    import hypothesis

    # Its examples follow from the test alone: what passes here passes on another machine.
    hypothesis.settings.register_profile("patient", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("patient")
torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))


def seed(name):
    """Seed torch by a name, so that a draw depends neither on the order of tests nor on the file they stand in."""
    torch.manual_seed(zlib.crc32(name.encode()))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    seed(fixturedef.argname)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    seed(getattr(item, "originalname", item.name))
