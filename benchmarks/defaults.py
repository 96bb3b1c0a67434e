"""Defaults of FedGen, FedGH and FedKD: what they are worth on rows that are neither trained on nor anybody's test data.

Two settings. `rotated-mnist-mixed`: accuracy on a participant's own validation digits. MNIST, six clients who
share 600 digits by Dirichlet(0.3): accuracy on held-out rows of MNIST's training half, by each client's own classes.
Four different networks in both, features in 64 groups. On the former, `solo` and methods that average heads have two
rates.

python benchmarks/defaults.py [--seeds 3] [--only fedgen] [--out results/defaults] [--data DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heterophony.settings import Setting, assemble
from tables import cell, collect, report

WIDE = {"width": 64}
VARIANTS = {
    "solo": ("solo", {}),
    "lg-fedavg": ("lg-fedavg", WIDE),  # which is fedgen with generated 0
    **{f"fedgen, generated {v:g}": ("fedgen", {**WIDE, "generated": v}) for v in (0.1, 1.0)},
    **{
        f"fedgh, head_epochs {epochs}, head_lr {lr:g}": ("fedgh", {**WIDE, "head_epochs": epochs, "head_lr": lr})
        for epochs, lr in ((1, 0.1), (10, 0.1), (100, 0.1), (100, 0.01))
    },
    **{f"fedkd, distil {v:g}": ("fedkd", {"distil": v}) for v in (0.3, 1.0, 10.0)},
}
# MNIST's test half is not read: what is tested on are rows of the training half.
DIRICHLET = {
    "data.source": "mnist",
    "data.rotations": [],
    "data.rows": 600,
    "data.clients": 6,
    "data.partition": {"kind": "dirichlet", "alpha": 0.3},
    "data.test": 0.1,
    "data.validation": 0.0,
    "data.public": None,
    "data.private_test": True,
    "data.test_rows": 3000,
    "local.batch": 10,
    "local.momentum": 0.0,
}
SETTINGS = {  # what is changed of rotated-mnist-mixed, rounds, the split, the figure
    "rotated-mnist-mixed, rate 0.025": ({"local.lr": 0.025}, 10, "validation", "wdp"),
    "rotated-mnist-mixed, rate 0.05": ({"local.lr": 0.05}, 10, "validation", "wdp"),
    "MNIST, Dirichlet(0.3), rate 0.05": (DIRICHLET | {"local.lr": 0.05}, 12, "test", "private"),
}
HEADS = ("solo", "lg-fedavg", "fedgen")  # with both rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="variants whose names begin so")
    parser.add_argument("--out", type=Path, default=Path("results/defaults"), help="what is there is not run again")
    parser.add_argument("--data", type=Path, default=None)
    args = parser.parse_args()

    # Options that the setting has for single methods would hide what the defaults are worth.
    setting = Setting.load("rotated-mnist-mixed").model_copy(update={"methods": {}})
    variants = {
        f"{name} | {where}": (*variant, where)
        for name, variant in VARIANTS.items()
        if args.only is None or name.startswith(args.only)
        for where in SETTINGS
        if "rate 0.05" not in where or "MNIST" in where or name.startswith(HEADS)
    }

    def job(name: str, seed: int) -> float | None:
        method, options, where = variants[name]
        changes, rounds, split, figure = SETTINGS[where]
        merged = {**changes, **options, "evaluate": rounds}
        made = assemble(method, setting, seed=seed, changes=merged, root=args.data)
        found: float | None = getattr(made.run(rounds).metrics(split=split), figure)
        return found

    arguments = {"setting": setting.plain(), "settings": SETTINGS}
    found = collect(args.out / "defaults.json", variants, args.seeds, job, arguments)
    lines = [f"| method | {' | '.join(SETTINGS)} |", "|---" * (1 + len(SETTINGS)) + "|"]
    for name in dict.fromkeys(name.split(" | ")[0] for name in variants):
        cells = [cell(found[key]) if (key := f"{name} | {where}") in found else "-" for where in SETTINGS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    command = f"python benchmarks/defaults.py --seeds {args.seeds}" + (f" --only {args.only}" if args.only else "")
    note = "Per cent, participants count alike, last round, on held-out rows that are not test data."
    report(args.out / "defaults.md", command, args.seeds, note, lines)


if __name__ == "__main__":
    main()
