"""FedH2L's Table II: Rotated MNIST, alpha = 10 %, LeNet5, per cent on test digits; beside the paper's figures.

python benchmarks/table2.py [--rounds 2000] [--seeds 5] [--split clean leaky] [--only NAME ...] [--out results/table2]
                            [--jobs 1] [--device cpu]

Every method takes `rounds` local batches of 32 (AMSGrad, 1e-3, weight decay 1e-4) and is evaluated about every 50; each
peer's model is the one with the best validation accuracy over all domains. FedAvg and FedProx get as many rounds as fit
in FedH2L's bytes, or in 100 times these, with the local batches spread over them; FedMD a round every 50 batches, as it
digests and revisits for whole epochs. Results go to OUT.jsonl as they come, so that a stopped script goes on where it
was; OUT.md is the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

import torch

from heterophony.engines import local
from heterophony.record.metrics import best_rounds, conflicts
from heterophony.settings import assemble

SETTING, EVERY = "rotated-mnist", 50
AMSGRAD = {"optimiser": "amsgrad", "lr": 1e-3, "weight_decay": 1e-4, "momentum": 0.0, "batch": 32, "steps": 1}
LOCAL = {f"local.{key}": value for key, value in AMSGRAD.items()}
FEDMD = {f"distil.{key}": value for key, value in AMSGRAD.items()} | {"distil.batch": 96, "distil.steps": EVERY}
FEDMD |= {"local.steps": EVERY, "initial_public": 20, "initial_local": 2}
# Local data are a participant's private and own public digits; for AGG, and "FedMD all" beside it, all public ones too.
# Those of FedH2L, and FedMD's distances, were chosen on validation digits of seed 0, after 500 and 400 batches.
# name: method, options, how many times FedH2L's bytes it may send (None: as it comes)
PLANS: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "FedH2L": ("fedh2l", {"local.data": "own"}, None),
    "AGG": ("agg", {}, None),
    "IND": ("solo", {"local.data": "own"}, None),
    "FedMD": ("fedmd", {**FEDMD, "local.data": "own", "measure": "ce"}, None),
    "FedMD all": ("fedmd", {**FEDMD, "local.data": "all"}, None),
    "FedAvg": ("fedavg", {"local.data": "own"}, 1),
    "FedProx": ("fedprox", {"local.data": "own"}, 1),
    "FedAvg x100": ("fedavg", {"local.data": "own"}, 100),
    "FedProx x100": ("fedprox", {"local.data": "own"}, 100),
    "FedH2L pairs": ("fedh2l", {"local.data": "own", "topology.kind": "pairs"}, None),
}
PAPER = {
    "FedH2L": (89.13, 93.33, 87.72),
    "FedH2L pairs": (88.21, 92.17, 86.89),
    "AGG": (85.25, 92.00, 83.00),
    "FedMD": (85.09, 91.17, 83.06),
    "IND": (68.45, 92.56, 60.47),
    "FedAvg": (86.50, 86.50, 86.50),
    "FedProx": (86.67, 86.67, 86.67),
}
FIGURES = ("acc", "wdp", "cdp")
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # 97.5 % by n


def one(job: tuple[str, str, int, int, str]) -> dict[str, Any]:
    name, split, seed, rounds, device = job
    torch.set_num_threads(1)
    method, options, times = PLANS[name]
    changes = {**LOCAL, **options, "data.leaky": split == "leaky", "evaluate": EVERY}

    def made(method: str, changes: dict[str, Any]) -> Any:
        return assemble(method, SETTING, seed=seed, changes=changes, compute={"device": device})

    if times is not None:
        reference = made("fedh2l", changes)
        budget = times * sum(reference.method.traffic(reference, rounds).values())
        fit = min(rounds, made(method, changes).rounds_within(budget))
        if not fit:
            raise SystemExit(f"{name}: not one round fits in {budget} bytes; take more --rounds")
        changes |= {"local.steps": rounds // fit, "evaluate": max(1, EVERY * fit // rounds)}
        rounds = fit
    elif changes["local.steps"] > 1:
        rounds, changes["evaluate"] = max(1, rounds // changes["local.steps"]), 1
    result = local(made(method, changes)).run(rounds)
    best = result.metrics(round=best_rounds(result.table, result.homes, result.headline))
    last, noted = result.metrics(), conflicts(result.table).values()
    row = {"name": name, "split": split, "seed": seed, "rounds": rounds, "steps": changes["local.steps"]}
    row |= {figure: getattr(best, figure) for figure in FIGURES}
    row |= {f"last_{figure}": getattr(last, figure) for figure in FIGURES}
    row |= {"bytes": sum(result.ledger.bytes().values()), "seconds": round(result.seconds)}
    return row | {f"conflict_{key}": statistics.mean(n[key] for n in noted) for key in ("share", "cosine") if noted}


def interval(values: list[float]) -> str:
    """Mean and half of the 95 % interval, in per cent."""
    mean = 100 * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {100 * STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5:.2f}"


def report(rows: list[dict[str, Any]], command: str) -> str:
    text = ["# FedH2L, Table II: Rotated MNIST, alpha = 10 %, LeNet5", ""]
    text += [f"`{command}`, {date.today()}, {platform.machine()}, one thread; mean and 95 % interval over seeds.", ""]
    for split in dict.fromkeys(row["split"] for row in rows):
        kind = (
            "each rotation split apart, as in the paper" if split == "leaky" else "base images split once, then turned"
        )
        text += [f"## {split}: {kind}", ""]
        columns = ["method", *map(str.upper, FIGURES), "paper", "ACC - paper", "FedH2L - ACC, by seed", "seeds"]
        columns += ["rounds x batches", "bytes a round", "seconds"]
        text += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
        ours = {row["seed"]: row["acc"] for row in rows if (row["name"], row["split"]) == ("FedH2L", split)}
        for name in PLANS:
            own = [row for row in rows if (row["name"], row["split"]) == (name, split)]
            if not own:
                continue
            figures = [interval([row[figure] for row in own]) for figure in FIGURES]
            paper = " / ".join(f"{value:.2f}" for value in PAPER[name]) if name in PAPER else "-"
            off = 100 * statistics.mean(row["acc"] for row in own) - PAPER[name][0] if name in PAPER else None
            ahead = [ours[row["seed"]] - row["acc"] for row in own if row["seed"] in ours and name != "FedH2L"]
            seeds = ", ".join(str(row["seed"]) for row in own)
            cells = [name, *figures, paper, "-" if off is None else f"{off:+.2f}"]
            cells += [interval(ahead) if ahead else "-", seeds]
            cells += [f"{own[0]['rounds']} x {own[0]['steps']}", f"{own[0]['bytes'] / own[0]['rounds']:,.0f}"]
            text.append(f"| {' | '.join(cells)} | {statistics.mean(row['seconds'] for row in own):.0f} |")
        text.append("")
        cost = {row["name"]: row["bytes"] / row["rounds"] for row in rows if row["split"] == split and row["bytes"]}
        if {"FedH2L", "FedAvg"} <= cost.keys():
            text += [f"FedAvg sends {cost['FedAvg'] / cost['FedH2L']:.1f} times FedH2L's bytes a round.", ""]
        fought = [row for row in rows if row["split"] == split and row["name"] == "FedH2L"]
        if fought:
            share, cosine = (statistics.mean(row[f"conflict_{key}"] for row in fought) for key in ("share", "cosine"))
            text += [
                f"FedH2L's gradients conflicted in {100 * share:.1f} % of rounds, mean cosine there {cosine:.2f}.",
                "",
            ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--split", nargs="+", choices=("clean", "leaky"), default=("clean", "leaky"))
    parser.add_argument("--only", nargs="+", choices=tuple(PLANS), default=tuple(PLANS))
    parser.add_argument("--out", type=Path, default=Path("results/table2"))
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    book = args.out.with_suffix(".jsonl")
    rows = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    known = {(row["name"], row["split"], row["seed"]) for row in rows}
    wanted = [(name, split, seed) for split in args.split for seed in range(args.seeds) for name in args.only]
    jobs = [(*job, args.rounds, args.device) for job in wanted if job not in known]
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(one, job) for job in jobs]):
            rows.append(done.result())
            with book.open("a") as stream:
                stream.write(json.dumps(rows[-1]) + "\n")
    rows.sort(key=lambda row: (row["split"], row["seed"]))
    text = report(rows, f"python benchmarks/table2.py --rounds {args.rounds} --seeds {args.seeds}")
    args.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
