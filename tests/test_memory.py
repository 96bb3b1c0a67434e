"""Memory that is freed is kept for the next step, and given back before a fork."""

import os
import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from heterophony.compute.memory import give_back_freed, keep_freed

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    held = [torch.ones(250_000) for _ in range(8)]  # 1 MB each, below the size of a huge page

if "keep" in sys.argv:
    keep_freed()
step(); step()
began = faults()
for _ in range(20):
    step()
print((faults() - began) / 20)
give_back_freed()
began = faults()
step()
print(faults() - began)
"""


def faults(*arguments: str, **environment: str) -> tuple[float, float]:
    """Fresh pages a step, and in a step after all was given back."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", STEPS, *arguments], env=clean | environment, capture_output=True, text=True, check=True
    )
    steady, after = found.stdout.split()
    return float(steady), float(after)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is set")
class TestFreed:
    def test_is_kept_for_the_next_step(self) -> None:
        steady, after = faults("keep")
        assert steady < 100 < 1000 < after  # 8 MB are 2,000 pages

    def test_is_fetched_again_by_itself(self) -> None:
        assert faults()[0] > 1000

    def test_is_as_its_user_wants_it(self) -> None:
        assert faults("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] > 1000
