"""B-HFL's expectation (Section 5): the nearer a model is to a leaf, the better on its data; towards the root, on all.

The tree of `bhfl-figure1` on MNIST: 16 leaves of 120 images and 5 classes each, one rotation an edge server, edge
servers of two turns, proxy data at the root, residual links both ways. With ablations; then the same tree without
waiting, as accuracy of the root's model against virtual time, where a leaf takes 1, 2, 4 or 8 ms a sample.

python benchmarks/levels.py levels|time [--seeds 3] [--rounds 20] [--out results/levels]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from datetime import date
from pathlib import Path

import torch

from heterophony.engines import local
from heterophony.record.levels import COLUMNS, levels
from heterophony.record.metrics import curve
from heterophony.settings import Setting, assemble

MNIST = {
    "data.source": "mnist",
    "data.test": None,
    "data.rows": 480,
    "data.validation": 0.0,
    "data.public": {"fraction": 0.01, "test": 0.5},
    "local.batch": 32,
}
TURNS = {"turns": {"2": 2, "*": 1}}
REPLACE = {"down.kind": "sgd", "down.rate": 1.0}
VARIANTS = {
    "B-HFL": ("bhfl", TURNS),
    "without residual links": ("bhfl", {**TURNS, "far": False}),
    "plain averaging": ("bhfl", {**TURNS, "up.kind": "sgd", "up.rate": 1.0, "down.kind": "sgd", "down.rate": 0.5}),
    "without persistence": ("bhfl", {**TURNS, **REPLACE}),
    "hierfavg (no proxy data)": ("hierfavg", TURNS),
}
# The same tree without proxy data and residual links, so that only waiting differs; one turn everywhere.
PURE = {"topology.residuals": [], "topology.proxy": [], "down.kind": "sgd", "down.rate": 0.5, "up.kind": "sgd"}
# With the number of the root's merges that take about as long as one synchronous round.
POLICIES = {
    "synchronous": ({"up.rate": 1.0}, 1),
    "FedBuff, 2 at edge servers": ({"up.rate": 1.0, "buffer": {"m0": 1, "m1": 1, "inner": 2, "*": 1}}, 22),
    "FedAsync everywhere": ({"up.rate": 0.6, "buffer": 1}, 52),
}
SPEEDS = (1e-3, 2e-3, 4e-3, 8e-3)


def run(method: str, seed: int, rounds: int, changes: dict) -> tuple:
    federation = assemble(method, Setting.load("bhfl-figure1"), seed=seed, changes={**MNIST, **changes})
    return federation, local(federation).run(rounds)


def level_table(name: str, seed: int, rounds: int) -> list[dict]:
    method, changes = VARIANTS[name]
    federation, result = run(method, seed, rounds, {**changes, "data.test_rows": 1000, "evaluate": rounds})
    return levels(result.table, federation.recipe["parents"], federation.homes)


def against_time(name: str, seed: int, rounds: int) -> list[tuple[float, float]]:
    """(virtual seconds, accuracy of the root's model on the union)."""
    changes, merges = POLICIES[name]
    profiles = {f"M{angle}.{i}": {"seconds_per_sample": speed, "latency": 0.02}
                for angle in (0, 30, 60, 90) for i, speed in enumerate(SPEEDS)}  # fmt: skip
    extra = {"profiles": profiles, "data.private_test": False, "data.test_rows": 250, "evaluate": merges}
    federation, result = run("bhfl", seed, rounds * merges, {**PURE, **changes, **extra})
    return [(at["time"], at["acc"]) for at in curve(result.table, federation.homes, "root")]


def mean(values: list) -> str:
    if any(value is None for value in values):
        return "-"
    spread = f" ± {100 * statistics.pstdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("levels", "time"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results/levels"), help="what is there is not run again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    store = args.out / f"{args.part}.json"
    found: dict[str, dict[str, list]] = json.loads(store.read_text()) if store.exists() else {}
    job, names = (level_table, VARIANTS) if args.part == "levels" else (against_time, POLICIES)
    for name in names:
        for seed in map(str, range(args.seeds)):
            runs = found.setdefault(name, {})
            if seed not in runs:
                runs[seed] = job(name, int(seed), args.rounds)
                store.write_text(json.dumps(found, indent=1) + "\n")
                print(name, seed, flush=True)
    command = f"python benchmarks/levels.py {args.part} --seeds {args.seeds} --rounds {args.rounds}"
    lines = [
        f"`{command}`, {date.today()}, {platform.machine()}, one thread on {os.cpu_count()} shared cores.",
        f"Per cent, mean ± deviation over seeds 0..{args.seeds - 1}.",
        "",
        *(level_lines if args.part == "levels" else time_lines)({name: list(found[name].values()) for name in names}),
    ]
    print("\n".join(lines))
    (args.out / f"{args.part}.md").write_text("\n".join(lines) + "\n")


def level_lines(found: dict[str, list]) -> list[str]:
    lines = [f"| variant | model of | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    for name, tables in found.items():
        for rows in zip(*tables, strict=True):
            cells = [mean([row[column] for row in rows]) for column in COLUMNS]
            lines.append(f"| {name} | {rows[0]['level']} | {' | '.join(cells)} |")
    return lines


def time_lines(found: dict[str, list]) -> list[str]:
    end = min(points[-1][0] for points in found["synchronous"])
    moments = [end / 8, end / 4, end / 2, end]
    lines = ["| policy | " + " | ".join(f"{t:.1f} s" for t in moments) + " |", "|---" * 5 + "|"]
    for name, curves in found.items():
        cells = [mean([_at(points, t) for points in curves]) for t in moments]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _at(points: list, moment: float) -> float | None:
    """The last accuracy known by then."""
    return next((acc for time, acc in reversed(points) if time <= moment + 1e-9), None)


if __name__ == "__main__":
    main()
