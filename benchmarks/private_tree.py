"""What noise at the lowest level of a tree costs each level: B-HFL, four budgets.

    python benchmarks/private_tree.py [--seeds 3] [--rounds 6] [--root DATA]

The B-HFL paper (Section 4) says that differential privacy is needed at the lowest level only. Here the leaves of the
setting `bhfl-figure1` train by DP-SGD (`local.private`), with the least noise that keeps all steps of all leaves within
epsilon. Nobody else adds noise: what edge, intermediate and central servers make of the leaves' weights costs nothing
more. The root trains on public proxy data, as in the setting. The rows are MNIST's, about 800 a leaf, of five classes;
the network is one linear layer. Clip and rate were fixed before; nothing is selected.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
from datetime import date

import torch

from heterophony.engines import local
from heterophony.kernel.accountant import composed, within
from heterophony.kernel.privacy import Charge
from heterophony.settings.assemble import assemble
from heterophony.tables.levels import levels

CLIP, DELTA, BATCH = 1.0, 1e-3, 64
EPOCHS = 1
WORLD = {
    "data.source": "mnist", "data.rows": 3200, "data.test_rows": 1000, "data.validation": 0.0,
    "data.public": {"fraction": 0.01, "test": 0.5}, "models.participants": "linear",
    "local.batch": BATCH, "local.epochs": EPOCHS, "local.lr": 0.1, "local.momentum": 0.0,
}  # fmt: skip
BUDGETS = (None, math.inf, 30.0, 10.0, 3.0, 1.0)
SHOWN = ("own", "union")


def noise_for(epsilon: float, rows: list[int], rounds: int) -> float:
    """Return the least noise, to the third digit, that keeps the training of every leaf within epsilon."""
    if epsilon == math.inf:
        return 1e-9  # clipped alone, to tell what the clip does from what the noise does
    rate, steps = BATCH / min(rows), rounds * EPOCHS * -(-max(rows) // BATCH)

    def kept(noise: float) -> bool:
        return within(composed([Charge("training", noise, rate, steps)]), epsilon, DELTA)

    low, high = 0.0, 0.5
    while not kept(high):
        low, high = high, 2 * high
    while high - low > 2e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def accuracies(epsilon: float | None, seed: int, rounds: int, root: str | None) -> dict[tuple[str, str], float]:
    """Run once; return the accuracy of each level's models, on own and on all test data."""
    changes: dict[str, object] = {**WORLD, "evaluate": rounds}
    made = assemble("bhfl", "bhfl-figure1", seed=seed, changes=changes, root=root)
    if epsilon is not None:
        leaves = [node for node, role in made.topology.roles.items() if role == "leaf"]
        noise = noise_for(epsilon, [len(made.node(leaf).data["train"]) for leaf in leaves], rounds)
        changes["local.private"] = {"clip": CLIP, "noise": noise}
        made = assemble("bhfl", "bhfl-figure1", seed=seed, changes=changes, root=root)
    run = local(made).run(rounds)
    parents = {node: links.parent[0] for node, links in made.topology.static.items() if links.parent}
    found = levels(run.table, parents, made.homes)
    return {(row["level"], figure): 100 * row[figure] for row in found for figure in SHOWN}


def named(epsilon: float | None) -> str:
    return "no clip, no noise" if epsilon is None else "clip alone" if epsilon == math.inf else f"{epsilon:g}"


def _budget(text: str) -> float | None:
    return None if text == "none" else float(text)


def main() -> None:
    """Print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--root")
    options.add_argument(
        "--budgets", nargs="+", default=BUDGETS, help="epsilons; none; inf for clipping alone", type=_budget
    )
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {chosen.seeds} seeds\n")
    heads: list[tuple[str, str]] = []
    for epsilon in chosen.budgets:
        runs = [accuracies(epsilon, seed, chosen.rounds, chosen.root) for seed in range(chosen.seeds)]
        if not heads:
            heads = sorted(runs[0], key=lambda head: SHOWN.index(head[1]))
            print(f"| epsilon of each leaf | {' | '.join(f'{level}, {what}' for level, what in heads)} |")
            print("|---" * (len(heads) + 1) + "|")
        cells = []
        for head in heads:
            own = [run[head] for run in runs]
            cells.append(f"{statistics.mean(own):.1f} ± {statistics.stdev(own) if len(own) > 1 else 0.0:.1f}")
        print(f"| {named(epsilon)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
