"""What private training costs in accuracy: four hospitals, epsilon by epsilon, beside FLamby's figures.

    python benchmarks/private_heart.py [--seeds 5] [--as-flamby] [--root DATA]

FedAvg in the setting `heart` with DP-SGD in each hospital (`local.private`): clip 1.1, delta 1e-4, as FLamby's script
has it (five seeds; Opacus). Each hospital's noise is the least with which all of its 1,500 steps stay within epsilon at
its own sampling rate. The figure is the mean over hospitals of the global model's accuracy on their own test rows.

With `--as-flamby`, steps and noise are those that FLamby's script asks of Opacus. Opacus divides a step's sum by the
batch size rounded down, which is 3 in three of the hospitals, so that their steps are a third longer. The script asks
for the noise of 15 passes over the data, and takes 1,500 steps. A last column says what epsilon these steps cost.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
from datetime import date

import torch

from heterophony import Privacy
from heterophony.engines import local
from heterophony.kernel.accountant import composed, epsilon_of, within
from heterophony.kernel.privacy import Charge
from heterophony.settings.assemble import assemble

CLIP, DELTA, BATCH, STEPS, ROUNDS = 1.1, 1e-4, 4, 100, 15
FLAMBY = {None: 71.2, 50.0: 70.2, 10.0: 70.0, 5.0: 70.4, 1.0: 68.5, 0.1: 60.6}  # mean accuracy over hospitals
RATE = 0.001


def noise_for(epsilon: float, rate: float, steps: int) -> float:
    """Return the least noise, to the third digit, that keeps so many steps within epsilon."""
    low, high = 0.0, 0.5
    while not _kept(high, epsilon, rate, steps):
        low, high = high, 2 * high
    while high - low > 2e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _kept(middle, epsilon, rate, steps) else (middle, high)
    return high


def _kept(noise: float, epsilon: float, rate: float, steps: int) -> bool:
    return within(composed([Charge("training", noise, rate, steps)]), epsilon, DELTA)


def hospital_noise(epsilon: float, rows: int, as_flamby: bool) -> float:
    """Return the noise of a hospital: for the steps that it takes, or for 15 passes over its rows."""
    if not as_flamby:
        return noise_for(epsilon, BATCH / rows, STEPS * ROUNDS)
    batches = math.ceil(rows / BATCH)
    return noise_for(epsilon, 1 / batches, ROUNDS * batches)


def spent(noise: float, rows: int) -> float:
    """Return the epsilon that all steps of a hospital cost."""
    return epsilon_of(composed([Charge("training", noise, BATCH / rows, STEPS * ROUNDS)]), DELTA)


def accuracy(
    epsilon: float | None, seed: int, root: str | None, as_flamby: bool = False
) -> tuple[float, dict[str, float], list[float]]:
    """Run once; return the mean accuracy over hospitals, and each hospital's noise and what it really costs."""
    changes: dict[str, object] = {"evaluate": ROUNDS}
    plain = assemble("fedavg", "heart", seed=seed, changes=changes, root=root)
    noise: dict[str, float] = {}
    costs: list[float] = []
    if epsilon is not None:
        hospitals = [node for node, role in plain.topology.roles.items() if role == "client"]
        rows = {node: len(plain.node(node).data["train"]) for node in hospitals}
        noise = {node: hospital_noise(epsilon, rows[node], as_flamby) for node in hospitals}
        costs = [spent(noise[node], rows[node]) for node in hospitals]
        changes["local.private"] = {"clip": CLIP, "noise": noise}
        changes["privacy"] = {"client": {"kinds": [], "delta": DELTA, "budget": 1.01 * max(costs)}}
        if as_flamby:
            rounded = {node: int(n / math.ceil(n / BATCH)) for node, n in rows.items()}
            changes["local.lr"] = {node: RATE * BATCH / size for node, size in rounded.items()} | {"*": RATE}
    federation = plain if epsilon is None else assemble("fedavg", "heart", seed=seed, changes=changes, root=root)
    assert all(part is None or isinstance(part, Privacy) for part in federation.privacy.values())
    run = local(federation).run(ROUNDS)
    assert all(row["status"] == "sent" for row in run.ledger.rows)  # the budget was enough, to the last round
    last = max(row["round"] for row in run.table.rows)
    found = [
        row["sum"] / row["n"]
        for row in run.table.rows
        if row["round"] == last and row["product"] == "global" and row["quantity"] == "accuracy"
    ]
    return 100 * statistics.mean(found), noise, costs


def main() -> None:
    """Print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--as-flamby", action="store_true", help="steps and noise as FLamby's script has them")
    options.add_argument("--root")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {chosen.seeds} seeds\n")
    print("| epsilon | accuracy | FLamby | noise of each hospital | epsilon of all steps | seconds a run |")
    print("|---|---|---|---|---|---|")
    for epsilon, printed in FLAMBY.items():
        began, figures = time.perf_counter(), []
        noise: dict[str, float] = {}
        costs: list[float] = []
        for seed in range(chosen.seeds):
            found, noise, costs = accuracy(epsilon, seed, chosen.root, chosen.as_flamby)
            figures.append(found)
        spread = statistics.stdev(figures) if len(figures) > 1 else 0.0
        said = ", ".join(f"{name} {value:.2f}" for name, value in noise.items()) or "-"
        seconds = (time.perf_counter() - began) / chosen.seeds
        named = "none" if epsilon is None else f"{epsilon:g}"
        print(
            f"| {named} | {statistics.mean(figures):.1f} ± {spread:.1f} | {printed} | {said} "
            f"| {', '.join(f'{cost:.3g}' for cost in costs) or '-'} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
