"""Personalisation: who gains, who loses, and the worst client, on 16 clients of four rotations of MNIST.

Data of `bhfl-figure1` on MNIST: 120 images and 5 classes a client, one rotation for each four, a private test each.
Every variant has the learning rate, of six, that is best for it on validation images (accuracy of the models on their
own rotation) of a seed that is not used again. B-HFL's root has 1,200 labelled images of all rotations (proxy data)
that nobody else sees; beside it stands the same tree without them.

python benchmarks/personal.py [--seeds 3] [--rounds 40] [--out results/personal] [--workers 1] [--device cpu]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heterophony import Compute
from heterophony.settings import Setting, assemble
from heterophony.studies import tuning
from heterophony.tables.clients import gains, own
from tables import cell, collect, report

MNIST = {
    "data.source": "mnist",
    "data.test": None,
    "data.rows": 480,
    "data.validation": 0.0,
    "data.public": {"fraction": 0.01, "test": 0.5},
    "data.test_rows": 1000,
    "local.batch": 32,
}
RATES = (0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2)
TUNING = 100  # the seed on which rates are chosen
VARIANTS = {
    "solo": ("solo", {}),
    "fedavg": ("fedavg", {}),
    "finetune": ("finetune", {"adapt": 2}),
    "ditto, pull 0.1": ("ditto", {"pull": 0.1}),
    "ditto, pull 1": ("ditto", {"pull": 1.0}),
    "ifca, 4 clusters": ("ifca", {"clusters": 4}),
    "fml": ("fml", {}),
    "bhfl": ("bhfl", {}),
    "bhfl, no proxy data": ("bhfl", {"topology.proxy": []}),
}


def mean_of(figures: dict[str, float | None]) -> float | None:
    """Undefined where one is: a model that has diverged has no accuracy."""
    known = [figure for figure in figures.values() if figure is not None]
    return sum(known) / len(known) if known and len(known) == len(figures) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("results/personal"), help="what is there is not run again")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    setting, compute = Setting.load("bhfl-figure1"), Compute(device=args.device)

    def rate(name: str) -> float:
        method, changes = VARIANTS[name]
        trials = tuning.tune(
            method, setting, {"local.lr": RATES}, budget=len(RATES), seeds=(TUNING,), by="own", rounds=args.rounds,
            changes={**MNIST, **changes, "data.validation": 0.01}, compute=compute, tried=args.out / "tried.jsonl",
        )  # fmt: skip
        return tuning.best(trials).options["local.lr"]

    def job(name: str, seed: int) -> dict:
        method, changes = VARIANTS[name]
        chosen = rate(name)
        merged = {**MNIST, **changes, "local.lr": chosen, "evaluate": args.rounds}
        made = assemble(method, setting, seed=seed, changes=merged, compute=compute)
        made = made.computed(workers=args.workers)
        result = made.run(args.rounds)
        headline = result.metrics()
        sizes = {r["quantity"]: r["sum"] for r in result.table if r["quantity"].endswith(".size")}
        sent = sum(result.ledger.bytes().values())
        return {
            "rate": chosen,
            "own": own(result.table, made.homes, made.method.headline),
            "union": headline.acc,
            "bytes": sent,
            "sizes": sizes,
        }

    arguments = {"setting": setting.plain(), "changes": MNIST, "rates": RATES, "rounds": args.rounds, **compute}
    found = collect(args.out / "personal.json", VARIANTS, args.seeds, job, arguments)
    lines = [
        "| method | rate | own data | worst client | gain against solo | lose | mean gain | union | MB sent |",
        "|---" * 9 + "|",
    ]
    for name, runs in found.items():
        against = [gains(run["own"], solo["own"]) for run, solo in zip(runs, found["solo"], strict=True)]
        means = [mean_of(run["own"]) for run in runs]
        worst = [each["worst"]["own"] for each in against]
        counts = [cell([len(each[key]) for each in against], 1.0) for key in ("gain", "lose")]
        row = [f"{runs[0]['rate']:g}", cell(means), cell(worst), *counts, cell([each["mean"] for each in against])]
        row += [cell([run["union"] for run in runs]), f"{runs[0]['bytes'] / 1e6:.0f}"]
        lines.append(f"| {name} | {' | '.join(row)} |")
    lines += ["", "Cluster sizes of IFCA in the end: " + "; ".join(
        ", ".join(f"{int(size)}" for size in run["sizes"].values()) for run in found["ifca, 4 clusters"])]  # fmt: skip
    command = f"python benchmarks/personal.py --seeds {args.seeds} --rounds {args.rounds} --device {args.device}"
    report(
        args.out / "personal.md",
        command,
        args.seeds,
        "Per cent of 16 clients' own data; of all test sets (union).",
        lines,
    )


if __name__ == "__main__":
    main()
