"""Every method on the embedded mixed setting, three seeds: accuracy over all domains on test digits, last round.

python benchmarks/embedded.py [--seeds 3] [--on rotated-mnist-mixed] [METHOD ...]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
from concurrent.futures import ProcessPoolExecutor
from datetime import date

METHODS = ("solo", "agg", "fedmd", "fedmd-global", "fml", "fccl", "feddf", "fedh2l")


def one(job: tuple[str, str, int]) -> tuple:
    import torch

    torch.set_num_threads(1)
    from heterophony.engines import local
    from heterophony.settings import Setting, assemble

    method, name, seed = job
    setting = Setting.load(name)
    result = local(assemble(method, setting, seed=seed)).run(setting.plan(method)[0])
    metrics = result.metrics()
    return method, seed, metrics.acc, metrics.wdp, metrics.cdp, result.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--on", default="rotated-mnist-mixed")
    args = parser.parse_args()
    methods = args.methods or METHODS
    jobs = [(method, args.on, seed) for method in methods for seed in range(args.seeds)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        found = list(pool.map(one, jobs))
    print(f"{date.today()}, {platform.machine()}, {args.on}, seeds 0..{args.seeds - 1}; per cent, mean over seeds")
    for method in methods:
        rows = [row for row in found if row[0] == method]
        acc, wdp, cdp = (100 * statistics.mean(row[i] for row in rows) for i in (2, 3, 4))
        each = ", ".join(f"{100 * row[2]:.1f}" for row in rows)
        print(f"{method:13s} all {acc:5.1f} ({each})  own {wdp:5.1f}  others {cdp:5.1f}  {rows[0][5]:.0f} s")


if __name__ == "__main__":
    main()
