"""Leaves that live between rounds: what a tree knows of data that drift and are deleted, with and without being asked.

Eight leaves under two edge servers get 20 digits of MNIST a second, and keep none unless the variant says so. Every 12
seconds the digits are turned by another 60 degrees. A message takes 1.2 s a hop, so that a leaf is asked about every
five seconds. "asked" trains then only. "asked, 20 epochs" trains five times as long then. "lives" trains each second.

python benchmarks/living.py [--seeds 3] [--rounds 8] [--out results/living] [--device cpu]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from heterophony import Compute
from heterophony.data.stream import Drift
from heterophony.settings import Setting, assemble
from heterophony.tables.drift import over_time
from tables import cell, collect, report

ANGLES = (0.0, 60.0, 120.0)
EVERY = 12
SPAN = range(5, EVERY * len(ANGLES))  # seconds: from when all have trained to the end of the last drift
LIVES = {"live": 1.0}
LONG = {"local.epochs": 20}
ALONE = {**LIVES, "down.rate": 0.0}
AGAINST: dict[str, dict[str, Any]] = {
    "": {},
    ", LwoF 1": {"retain.lwof": 1.0},
    ", EWC 100": {"retain.ewc": 100.0},
    ", rehearsal": {"data.stream.memory": 20, "data.stream.keep": "reservoir"},
}
WHO: dict[str, dict[str, Any]] = {"asked": {}, "lives": LIVES}
VARIANTS = {f"{who}{what}": {**how, **more} for what, more in AGAINST.items() for who, how in WHO.items()}
# A drift is about as long as so many trainings: PackNet is told where a task ends.
PACKED = {"asked": {"retain.packnet": 0.5, "retain.task": 2}, "lives": {"retain.packnet": 0.5, "retain.task": 14}}
VARIANTS |= {f"{who}, PackNet": {**WHO[who], **how} for who, how in PACKED.items()}
VARIANTS |= {"asked, 20 epochs": LONG, "lives alone": ALONE}
TREE = {"root": {"left": ["c0", "c1", "c2", "c3"], "right": ["c4", "c5", "c6", "c7"]}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("results/living"), help="what is there is not run again")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    stream = {"drift": "sudden", "every": EVERY, "seconds": 1.0, "arrivals": 20}
    stream["concepts"] = [{"degrees": angle} for angle in ANGLES]
    data = {"source": "mnist", "clients": 8, "rows": 8 * 20 * (6 * args.rounds + 6), "test_rows": 300}
    setting = Setting.of(
        {
            "name": "living",
            "data": {**data, "stream": stream},
            "models": {"participants": "mlp"},
            "topology": {"tree": TREE},
            "local": {"epochs": 4, "batch": 10, "lr": 0.05, "momentum": 0.5},
            "profiles": {"": {"latency": 0.6, "seconds_per_sample": 1e-3}},
        }
    )

    def job(name: str, seed: int) -> list[dict[str, Any]]:
        changes = {**VARIANTS[name], "evaluate": 3 if "lives" in name else 1}
        made = assemble("bhfl", setting, seed=seed, changes=changes, compute=Compute(device=args.device))
        shares = Drift("sudden", len(ANGLES), EVERY).shares
        return over_time(made.run(args.rounds).table, made.homes, "leaf", shares, 1.0)

    found = collect(
        args.out / "living.json", VARIANTS, args.seeds, job, {"setting": setting.plain(), "rounds": args.rounds}
    )
    lines = [
        "| variant | present, mean over time | present, at the end | past, at the end | forgotten |",
        "|---" * 5 + "|",
    ]
    for variant, runs in found.items():
        spans = [[at for at in run if at["round"] in SPAN] for run in runs]
        last = [span[-1] for span in spans]
        row = [cell([statistics.mean(at["present"] for at in span) for span in spans])]
        row += [cell([at[key] for at in last]) for key in ("present", "past", "forgotten")]
        lines.append(f"| {variant} | {' | '.join(row)} |")
    command = f"python benchmarks/living.py --seeds {args.seeds} --rounds {args.rounds}"
    note = f"MNIST, eight streams of 20 a second, {args.rounds} rounds of about five seconds, MLP; per cent."
    report(args.out / "living.md", command, args.seeds, note, lines)


if __name__ == "__main__":
    main()
