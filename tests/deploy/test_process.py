"""Children of a process in which data were loaded and models built; programs that end as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("last", "code"), [("", 0), ("sys.exit(3)", 3)])
def test_a_program_ends_with_its_main_thread_and_says_how(last, code, tmp_path):
    """Other threads do not keep it: whoever keeps it running would not see that its work is over."""
    program = tmp_path / "program"
    program.write_text(
        f"import sys, threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n{last}\n"
    )
    command = [sys.executable, "-P", "-m", "heterophony.deploy.whole_end", str(program)]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == code
