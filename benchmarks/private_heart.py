"""What private training costs in accuracy: four hospitals, epsilon by epsilon, beside FLamby's figures.

    python benchmarks/private_heart.py [--seeds 5] [--root DATA]

FedAvg in the setting `heart` with DP-SGD in each hospital (`local.private`): clip 1.1, delta 1e-4, as FLamby's script
has it (five seeds; Opacus). Each hospital's noise is the least with which all of its 1,500 steps stay within epsilon at
its own sampling rate. The figure is the mean over hospitals of the global model's accuracy on their own test rows.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from datetime import date

import torch

from heterophony import Privacy
from heterophony.engines import local
from heterophony.kernel.accountant import composed, within
from heterophony.kernel.privacy import Charge
from heterophony.settings.assemble import assemble

CLIP, DELTA, BATCH, STEPS, ROUNDS = 1.1, 1e-4, 4, 100, 15
FLAMBY = {None: 71.2, 50.0: 70.2, 10.0: 70.0, 5.0: 70.4, 1.0: 68.5, 0.1: 60.6}  # mean accuracy over hospitals


def noise_for(epsilon: float, rows: int) -> float:
    """Return the least noise, to the third digit, that keeps all steps of a hospital within epsilon."""
    low, high = 0.0, 0.5
    while not _kept(high, epsilon, rows):
        low, high = high, 2 * high
    while high - low > 2e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _kept(middle, epsilon, rows) else (middle, high)
    return high


def _kept(noise: float, epsilon: float, rows: int) -> bool:
    charge = Charge("training", noise, BATCH / rows, STEPS * ROUNDS)
    return within(composed([charge]), epsilon, DELTA)


def accuracy(epsilon: float | None, seed: int, root: str | None) -> tuple[float, dict[str, float]]:
    """Run once; return the mean accuracy over hospitals, and each hospital's noise."""
    changes: dict[str, object] = {"evaluate": ROUNDS}
    plain = assemble("fedavg", "heart", seed=seed, changes=changes, root=root)
    noise = {}
    if epsilon is not None:
        hospitals = [node for node, role in plain.topology.roles.items() if role == "client"]
        noise = {node: noise_for(epsilon, len(plain.node(node).data["train"])) for node in hospitals}
        changes["local.private"] = {"clip": CLIP, "noise": noise}
        changes["privacy"] = {"client": {"kinds": [], "delta": DELTA, "budget": epsilon}}
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
    return 100 * statistics.mean(found), noise


def main() -> None:
    """Print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--root")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {chosen.seeds} seeds\n")
    print("| epsilon | accuracy | FLamby | noise of each hospital | seconds a run |\n|---|---|---|---|---|")
    for epsilon, printed in FLAMBY.items():
        began, figures = time.perf_counter(), []
        noise: dict[str, float] = {}
        for seed in range(chosen.seeds):
            found, noise = accuracy(epsilon, seed, chosen.root)
            figures.append(found)
        spread = statistics.stdev(figures) if len(figures) > 1 else 0.0
        said = ", ".join(f"{name} {value:.2f}" for name, value in noise.items()) or "-"
        seconds = (time.perf_counter() - began) / chosen.seeds
        named = "none" if epsilon is None else f"{epsilon:g}"
        print(
            f"| {named} | {statistics.mean(figures):.1f} ± {spread:.1f} | {printed} | {said} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
