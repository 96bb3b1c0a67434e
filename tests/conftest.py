"""What holds for every test: one torch thread, a seed and modules of its own, the toys on the path, patience."""

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


@pytest.fixture(autouse=True)
def own_modules(tmp_path_factory):
    """Forget the modules that a test has imported from its own folder: another test's may have the same name."""
    known = set(sys.modules)
    yield
    if len(sys.modules) > len(known):
        folder = str(tmp_path_factory.getbasetemp())
        for name in sys.modules.keys() - known:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                del sys.modules[name]
