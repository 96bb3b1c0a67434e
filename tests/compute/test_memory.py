"""Memory that is freed is kept for the next step, and given back before a fork."""

import os
import subprocess
import sys

import pytest

from heterophony.compute import memory

STEPS = """
import resource, torch
from heterophony.compute.memory import give_back_freed, keep_freed

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    held = [torch.ones(250_000) for _ in range(8)]  # 1 MB each, below the size of a huge page

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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is set")
def test_what_is_freed_is_kept_for_the_next_step_until_it_is_given_back():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run([sys.executable, "-c", STEPS], env=clean, capture_output=True, text=True, check=True)
    steady, after = map(float, found.stdout.split())
    assert steady < 100 < 1000 < after  # fresh pages; 8 MB are 2,000


def test_whoever_has_set_up_the_library_keeps_it_so(monkeypatch):
    called = []
    monkeypatch.setattr(memory, "_call", lambda *given: called.append(given))
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    memory.keep_freed()
    assert [name for name, *_ in called] == ["mallopt", "mallopt"]
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    memory.keep_freed()
    assert len(called) == 2
