"""FedMD+Global in the small: how convolutions begin, and how strong Eq. 1's distance is, on validation images alone.

`cifar10-dirichlet` with three clients and a server that have a WRN-10-1 each, images of 12x12, 4,000 private rows of
which half are for validation, 1,200 public images of which 600 are drawn in a round. Test images are not asked for.

python benchmarks/fedmd.py [--rounds 8] [--seeds 2] [--data FOLDER]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from heterophony.settings import assemble

SMALL = {
    "data.clients": 3,
    "data.rows": 4000,
    "data.validation": 0.5,
    "data.side": 12,
    "data.public.rows": 1200,
    "local.epochs": 3,
    "local.batch": 32,
    "sample": 600,
    "initial_public": 4,
    "local.initial": 4,
    "distil.epochs": 3,
    "distil.batch": 64,
}
PRODUCTS = ("initial", "global", "distilled", "personalised")
STARTS = {"torch": "", "fan-out": "-fan-out"}
# start, reduction, rate
ARMS = (
    ("fan-out", "mean", 0.1),
    ("torch", "mean", 0.1),
    ("fan-out", "mean", 1.0),
    ("torch", "mean", 1.0),
    ("fan-out", "sum", 0.1),
    ("torch", "sum", 0.1),
)


def figures(start: str, reduction: str, rate: float, seed: int, args: argparse.Namespace) -> dict[str, float]:
    """Accuracy in per cent of each product on the validation images after the last round."""
    network = f"wrn-10-1{STARTS[start]}"
    changes = {**SMALL, "models.participants": network, "models.global": network, "models.same": network}
    changes |= {"reduction": reduction, "distil.lr": rate, "evaluate": args.rounds}
    made = assemble("fedmd-global", "cifar10-dirichlet", seed=seed, changes=changes, root=args.data)
    tests = {name: {"validation": splits["validation"]} for name, splits in made.tests.items()}
    result = replace(made, tests=tests).run(args.rounds)
    return {name: 100 * (result.metrics(name, split="validation").acc or 0.0) for name in PRODUCTS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", help="folder with data sets; as everywhere if not given")
    args = parser.parse_args()

    print(f"| start | distance | rate | seed | {' | '.join(PRODUCTS)} |")
    print("|---|---|---|---|" + "---|" * len(PRODUCTS))
    for seed in range(args.seeds):
        for start, reduction, rate in ARMS:
            found = figures(start, reduction, rate, seed, args)
            cells = " | ".join(f"{found[name]:.1f}" for name in PRODUCTS)
            print(f"| {start} | {reduction} | {rate:g} | {seed} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
