"""One torch thread a process, the toys on the path, and no example fails for taking long: machines are shared."""

import sys
from contextlib import suppress
from pathlib import Path

import torch

with suppress(ImportError):  # the tests of a GPU do without
    import hypothesis

    hypothesis.settings.register_profile("patient", deadline=None)
    hypothesis.settings.load_profile("patient")
torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))
