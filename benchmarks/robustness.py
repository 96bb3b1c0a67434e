"""What liars cost: one method a family, each with several rules, under several attacks, by the share of liars.

python benchmarks/robustness.py --out runs/robustness [--seeds 2] [--rounds 10] [--attacks sign-flip ...] [ARM ...]

Ten participants share the 1,000 embedded digits; four in ten of these are test rows. A figure is the mean accuracy of
the honest participants' models on the test rows after the last round. The table has, for each share of liars, the
worst of the attacks. Runs are kept in runs.json of the folder: what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from heterophony.engines import local
from heterophony.report.figure import Figure, Heat, Panel
from heterophony.report.static import save
from heterophony.settings import Setting, assemble
from tables import cell, collect, report

PARTICIPANTS = 10
SHARES = (0, 1, 2, 3)
ATTACKS = ("sign-flip", "gaussian", "label-flip")
WORLD: dict[str, Any] = {
    "data.rotations": [0],
    "data.clients": PARTICIPANTS,
    "data.test": 0.4,
    "data.validation": 0.0,
    "models.participants": "mlp",
    "local.epochs": 3,
    "local.batch": 16,
}
LOGITS = {"distil.lr": 0.05, "distil.momentum": 0.9}
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedmd": {"measure": "ce", "local.initial": 2, **LOGITS},
    "cronus": {"local.initial": 2},
    "fedproto": {},
}
OF = {  # the rules that each family is measured with
    "fedavg": ("mean", "median", "multi-krum"),
    "fedmd": ("mean", "median"),
    "cronus": ("mean", "filter"),
    "fedproto": ("mean", "median"),
}
ARMS = [f"{method} {rule}" for method, rules in OF.items() for rule in rules]


def one(arm: str, attack: str, liars: int, rounds: int, seed: int) -> float | None:
    """Return the honest participants' mean accuracy; None where a model's outputs are no numbers."""
    method, rule = arm.split()
    changes = {**WORLD, **METHODS[method], "cohort.combine": rule, "evaluate": rounds}
    if liars:
        changes |= {"attack.how": attack, "attack.who": liars}
    federation = assemble(method, Setting.load("rotated-mnist"), seed=seed, changes=changes)
    liar = set(federation.attack.who) if federation.attack else set()
    found = local(federation).run(rounds)
    table = found.table.select(product=federation.method.headline, quantity="accuracy", split="test").last()
    rows = [row for row in table.rows if row["node"] not in liar]
    if not rows or any(row["sum"] is None for row in rows):
        return None
    return float(sum(row["sum"] for row in rows) / sum(row["n"] for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*", default=ARMS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--liars", nargs="+", type=int, default=list(SHARES))
    args = parser.parse_args()
    cases = {
        f"{arm}, {attack}, {liars}": (arm, attack, liars)
        for arm in args.arms
        for liars in args.liars
        for attack in (args.attacks if liars else ["nobody"])
    }
    began = time.perf_counter()
    told = {"rounds": args.rounds, "world": WORLD, "methods": METHODS}
    found = collect(
        args.out / "runs.json", cases, args.seeds, lambda name, seed: one(*cases[name], args.rounds, seed), told
    )
    write(args, cases, found)
    print(f"{time.perf_counter() - began:.0f} s")


def write(args: argparse.Namespace, cases: dict[str, Any], found: dict[str, list[Any]]) -> None:
    """Write the table, all cells, and the heat map."""
    lines = [f"| | {' | '.join(f'{liars} of {PARTICIPANTS}' for liars in args.liars)} | worst attack |"]
    lines.append("|---" * (len(args.liars) + 2) + "|")
    heat: list[list[float | None]] = []
    for arm in args.arms:
        worst = [_worst(arm, liars, cases, found) for liars in args.liars]
        lines.append(f"| {arm} | {' | '.join(cell(found[name]) for name in worst)} | {cases[worst[-1]][1]} |")
        heat.append([100 * _mean(found[name]) for name in worst])
    command = f"python benchmarks/robustness.py --out {args.out} --seeds {args.seeds} --rounds {args.rounds}"
    note = f"{PARTICIPANTS} participants, accuracy of the honest in per cent, the worst of {', '.join(args.attacks)}."
    report(args.out / "table.md", command, args.seeds, note, lines)
    (args.out / "cells.json").write_text(json.dumps(found, indent=1) + "\n")
    shares = [f"{10 * liars} %" for liars in args.liars]
    caption = f"Accuracy of honest participants (%) under the worst attack, by the share of liars; {args.seeds} seeds."
    panel = Panel([Heat(heat, args.arms, shares, low=0, high=100, digits=0)], x="liars")
    save(Figure("robustness", "What liars cost", caption, caption, [panel], width="middle"), args.out)


def _worst(arm: str, liars: int, cases: dict[str, Any], found: dict[str, list[Any]]) -> str:
    """Return the case with the lowest mean; one whose models are lost is the lowest."""
    names = [name for name, (own, _, count) in cases.items() if (own, count) == (arm, liars)]
    return min(names, key=lambda name: _mean(found[name]))


def _mean(values: list[float | None]) -> float:
    """Return the mean, where a lost model has no accuracy at all."""
    return sum(value or 0.0 for value in values) / len(values)


if __name__ == "__main__":
    main()
