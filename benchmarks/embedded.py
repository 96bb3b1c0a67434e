"""Every method for different networks on the embedded mixed setting: accuracy on test digits, last round.

python benchmarks/embedded.py [--seeds 3] [--on rotated-mnist-mixed] [METHOD ...]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from datetime import date

from heterophony.tables.interval import interval

# Alone, with what FedH2L has besides its peers: its own public digits, and its optimiser.
EQUAL = {"local.data": "own", "local.optimiser": "amsgrad", "local.lr": 1e-3, "local.weight_decay": 1e-4}
ARMS = {
    **{name: (name, {}) for name in ("solo", "agg", "fedmd", "fml", "fccl", "feddf", "fedh2l")},
    "solo, with fedh2l's digits and optimiser": ("solo", {**EQUAL, "local.momentum": 0.0}),
    **{name: (name, {}) for name in ("ds-fl", "kt-pfl", "cronus", "fedkd", "fedgh", "fedtgp", "fedproto", "fd")},
    **{name: (name, {}) for name in ("rcfl", "fedmrl", "fedgen", "lg-fedavg")},
}


def one(job: tuple[str, str, int]) -> tuple:
    import torch

    torch.set_num_threads(1)
    from heterophony.engines import local
    from heterophony.settings import Setting, assemble

    label, name, seed = job
    method, changes = ARMS.get(label, (label, {}))
    setting = Setting.load(name)
    result = local(assemble(method, setting, seed=seed, changes=changes)).run(setting.plan(method)[0])
    return label, result.metrics(), sum(result.ledger.bytes().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--on", default="rotated-mnist-mixed")
    args = parser.parse_args()
    labels = args.methods or list(ARMS)
    jobs = [(label, args.on, seed) for label in labels for seed in range(args.seeds)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        found = list(pool.map(one, jobs))
    print(
        f"{date.today()}, {platform.machine()}, {args.on}, seeds 0..{args.seeds - 1}; per cent, mean ± 95 % interval\n"
    )
    print("| method | all | own | others | sent |\n|---|---|---|---|---|")
    for label in labels:
        figures = [metrics for name, metrics, _ in found if name == label]
        cells = [interval([getattr(each, key) for each in figures]) for key in ("acc", "wdp", "cdp")]
        sent = max(sent for name, _, sent in found if name == label)
        print(f"| {label} | {' | '.join('-' if c is None else c.text() for c in cells)} | {sent / 1e6:.1f} MB |")


if __name__ == "__main__":
    main()
