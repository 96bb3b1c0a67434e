"""Children of a process in which data were loaded and models built."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import torch
from heterophony.deploy.process import forkable, forked

forkable()
torch.ones(1_000_000).exp().sum()  # enough for several threads, as data of one's own may be


def work():
    torch.set_num_threads(2)  # as a federation may say
    return int(torch.ones(1_000_000).exp().sum() < 1)


child = forked(work)
child.join(60)
print("ended with", child.exitcode)
child.kill()
"""


def test_a_child_can_compute_although_its_parent_has():
    source = str(Path(__file__).parents[2] / "src")
    known = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**known, "PYTHONPATH": source}, capture_output=True, text=True
    )
    assert done.stdout == "ended with 0\n", done.stderr
