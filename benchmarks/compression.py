"""What few bits cost: FedAvg with LeNet5 on the embedded digits, accuracy on test digits beside the bytes of updates.

python benchmarks/compression.py [--seeds 3] [--on rotated-mnist] [--rounds 15] [ARM ...]
"""

from __future__ import annotations

import argparse
import platform
import sys
from datetime import date

from heterophony.tables.interval import interval

DELTA = {"delta": True}
LOSSY = {"delta": True, "feedback": True}
DGC = {**LOSSY, "momentum": 0.5, "warmup": 4}
ARMS = {
    "whole": {},
    "16 bits": {"update": {"bits": 16}},
    "8 bits": {"update": {"bits": 8}},
    "4 bits": {"update": {"bits": 4}},
    "4 bits of the difference": {"update": {"bits": 4, **DELTA}},
    "4 bits of the difference, feedback": {"update": {"bits": 4, **LOSSY}},
    "8 bits up and down": {"update": {"bits": 8, **DELTA}, "global": {"bits": 8}},
    "1 in 10, nothing fed back": {"update": {"keep": 0.1, **DELTA}},
    "1 in 10, feedback": {"update": {"keep": 0.1, **LOSSY}},
    "1 in 100, feedback": {"update": {"keep": 0.01, **LOSSY}},
    "1 in 100, DGC": {"update": {"keep": 0.01, **DGC}},
    "1 in 100, DGC, 8 bits": {"update": {"keep": 0.01, "bits": 8, **DGC}},
}


def one(arm: str, name: str, seed: int, rounds: int | None) -> tuple[float, int, int]:
    """Return the accuracy after the last round, and the bytes that went up and down."""
    import torch

    torch.set_num_threads(1)
    from heterophony.engines import local
    from heterophony.settings import Setting, assemble

    setting = Setting.load(name)
    rounds = rounds or setting.plan("fedavg")[0]
    changes = {f"compress.{kind}.{key}": value for kind, own in ARMS[arm].items() for key, value in own.items()}
    result = local(assemble("fedavg", setting, seed=seed, changes={"evaluate": rounds, **changes})).run(rounds)
    sent = result.ledger.bytes()
    return result.metrics().acc, sent["update"], sent["global"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--on", default="rotated-mnist")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    print(
        f"{date.today()}, {platform.machine()}, {args.on}, seeds 0..{args.seeds - 1}; per cent, mean ± 95 % interval\n"
    )
    print("| updates | accuracy | sent up | less | sent down |\n|---|---|---|---|---|")
    whole = None
    for arm in args.arms or ARMS:
        found = [one(arm, args.on, seed, args.rounds) for seed in range(args.seeds)]
        print(*(f"{arm} seed {seed}: {each[0]:.4f}" for seed, each in enumerate(found)), sep="; ", file=sys.stderr)
        told, up, down = interval([each[0] for each in found]), found[0][1], found[0][2]
        whole = whole or up
        told_as = "-" if told is None else told.text()
        print(f"| {arm} | {told_as} | {up / 1e6:.2f} MB | {whole / up:.1f} | {down / 1e6:.2f} MB |", flush=True)


if __name__ == "__main__":
    main()
