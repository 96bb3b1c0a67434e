"""Dataset shift: what is known of present and past data while MNIST turns, with and without parts against forgetting.

Eight clients get 20 digits a round as a stream; every `--every` rounds they are turned by another 60 degrees.

python benchmarks/drift.py [--drift sudden|gradual|recurring] [--memory 0] [--seeds 3] [--every 20]
                           [--out results/drift] [--workers 1] [--device cpu]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from heterophony import Compute
from heterophony.data.stream import Drift
from heterophony.settings import Setting, assemble
from heterophony.tables.drift import over_time
from tables import cell, collect, report

ANGLES = (0.0, 60.0, 120.0)
VARIANTS = {
    "solo": ("solo", {}),
    "solo, LwoF 1": ("solo", {"retain.lwof": 1.0}),
    "solo, EWC 100": ("solo", {"retain.ewc": 100.0}),
    "fedavg": ("fedavg", {}),
    "ditto": ("ditto", {}),
    "ditto, LwoF 1": ("ditto", {"retain.lwof": 1.0}),
    "ditto, EWC 100": ("ditto", {"retain.ewc": 100.0}),
    "bhfl": ("bhfl", {}),
    "bhfl, LwoF 1": ("bhfl", {"retain.lwof": 1.0}),
    "bhfl, EWC 100": ("bhfl", {"retain.ewc": 100.0}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drift", default="sudden", choices=("sudden", "gradual", "recurring"))
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/drift"), help="what is there is not run again")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    stages = 6 if args.drift == "recurring" else 3
    rounds = stages * args.every
    stream = {"drift": args.drift, "every": args.every, "arrivals": 20, "memory": args.memory}
    stream["concepts"] = [{"degrees": angle} for angle in ANGLES]
    data = {"source": "mnist", "clients": 8, "rows": 8 * 20 * rounds, "test_rows": 500, "stream": stream}
    local = {"epochs": 4, "batch": 10, "lr": 0.05, "momentum": 0.5}
    setting = Setting.of({"name": "drift", "data": data, "models": {"participants": "mlp"}, "local": local})

    def job(name: str, seed: int) -> list[dict]:
        method, changes = VARIANTS[name]
        merged = {**changes, "evaluate": max(1, args.every // 10)}
        made = assemble(method, setting, seed=seed, changes=merged, compute=Compute(device=args.device))
        made = made.computed(workers=args.workers)
        shares = Drift(args.drift, len(ANGLES), args.every).shares
        return over_time(made.run(rounds).table, made.homes, made.method.headline, shares)

    name = f"{args.drift}-memory{args.memory}-every{args.every}"
    arguments = {"setting": setting.plain(), "rounds": rounds, "every": args.every, "device": args.device}
    found = collect(args.out / f"{name}.json", VARIANTS, args.seeds, job, arguments)
    lines = [
        "| variant | present, mean over time | present, at the end | past, at the end | forgotten |",
        "|---" * 5 + "|",
    ]
    for variant, runs in found.items():
        row = [cell([statistics.mean(at["present"] for at in run) for run in runs])]
        row += [cell([run[-1][key] for run in runs]) for key in ("present", "past", "forgotten")]
        lines.append(f"| {variant} | {' | '.join(row)} |")
    command = f"python benchmarks/drift.py --drift {args.drift} --memory {args.memory} --every {args.every}"
    command += f" --seeds {args.seeds}"
    note = f"MNIST, eight streams of 20 a round, {rounds} rounds, MLP; per cent."
    report(args.out / f"{name}.md", command, args.seeds, note, lines)


if __name__ == "__main__":
    main()
