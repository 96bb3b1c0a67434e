"""A training step on a CPU with memory as torch asks for it, as ours does, and compiled: milliseconds.

    python benchmarks/memory.py [--repeats 3]

Each figure is of a process of its own, one thread, channels-last networks, SGD: the best of five times forty steps, and
of the repeats, which take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from datetime import date

CASES = [("lenet5", 16), ("lenet5", 32), ("lenet5", 64), ("lenet5", 128), ("pfl's CNN", 10), ("logistic", 10)]
WAYS = ("as torch is", "ours", "compiled")


def step(case: str, batch: int, way: str) -> float:
    """Milliseconds of a step."""
    import torch
    import torch.nn.functional as F

    from heterophony.compute.memory import keep_freed
    from heterophony.models import create
    from peers import network

    if way != "as torch is":
        keep_freed()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if case == "lenet5":
        made, shape = create("lenet5", in_channels=1, size=28, classes=10), (1, 28, 28)
    else:
        made = network("cifar" if case == "pfl's CNN" else "logistic")
        shape = (3, 32, 32) if case == "pfl's CNN" else (784,)
    made = made.to(memory_format=torch.channels_last)
    asked = torch.compile(made) if way == "compiled" else made
    x, y = torch.randn(5, batch, *shape), torch.randint(10, (5, batch))
    optimiser = torch.optim.SGD(made.parameters(), 0.01)
    best = float("inf")
    for _ in range(6):  # the first is for warming up
        began = time.perf_counter()
        for i in range(40):
            optimiser.zero_grad()
            F.cross_entropy(asked(x[i % 5]), y[i % 5]).backward()
            optimiser.step()
        best = min(best, (time.perf_counter() - began) / 40)
    return 1e3 * best


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.one:
        print(step(args.one[0], int(args.one[1]), args.one[2]))
        return
    print(f"{date.today()}, {platform.machine()}, milliseconds a step, best of {args.repeats}")
    print(f"| network, batch | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}")
    for case, batch in CASES:
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(args.repeats):
            for way in WAYS:
                pages = "0" if way == "as torch is" else "1"
                environment = {**os.environ, "OMP_NUM_THREADS": "1", "THP_MEM_ALLOC_ENABLE": pages}
                command = [sys.executable, __file__, "--one", case, str(batch), way]
                said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                found[way].append(float(said.stdout.split()[-1]))
        print(f"| {case}, {batch} | {' | '.join(f'{min(found[way]):.2f}' for way in WAYS)} |", flush=True)


if __name__ == "__main__":
    main()
