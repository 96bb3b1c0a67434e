"""Text: one language a subtree against random subtrees of the same sizes, and topics in eight languages.

python benchmarks/text.py languages|topics [--seeds 3] [--rounds 30] [--out results/text] [--workers 1] [--device cpu]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from heterophony import Compute
from heterophony.settings import Setting, assemble
from heterophony.tables.clients import own
from heterophony.tables.levels import COLUMNS, levels, perplexities
from tables import cell, collect, report

RANDOM = {"topology.by": "random"}
LANGUAGES = {
    "B-HFL, languages": ("bhfl", {}),
    "B-HFL, random subtrees": ("bhfl", RANDOM),
    "HierFAVG, languages": ("hierfavg", {"turns": {"inner": 2, "*": 1}}),
    "HierFAVG, random subtrees": ("hierfavg", {**RANDOM, "turns": {"inner": 2, "*": 1}}),
    "FedAvg": ("fedavg", {"epochs": 2}),
    "Ditto": ("ditto", {"epochs": 2}),
    "SOLO": ("solo", {"epochs": 2}),
}
TOPICS = {name: (name, {}) for name in ("solo", "fedavg", "finetune", "ditto", "fml", "ifca", "bhfl", "hierfavg")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("languages", "topics"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/text"), help="what is there is not run again")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    variants, language = (LANGUAGES, True) if args.part == "languages" else (TOPICS, False)
    setting = Setting.load(f"text-{args.part}")

    def job(name: str, seed: int) -> dict:
        method, changes = variants[name]
        merged = {**changes, "evaluate": args.rounds}
        compute = Compute(device=args.device)
        made = assemble(method, setting, seed=seed, changes=merged, compute=compute)
        result = made.computed(workers=args.workers).run(args.rounds)
        parents, quantity = made.recipe.get("parents"), "loss" if language else "accuracy"
        table = (perplexities if language else levels)(result.table, parents, made.homes) if parents else None
        figures = result.metrics()
        union = math.exp(figures.loss) if language and figures.loss is not None else figures.acc
        mine = own(result.table, made.homes, made.method.headline, quantity)
        return {"levels": table, "own": mine, "union": union}

    arguments = {"setting": setting.plain(), "rounds": args.rounds, "device": args.device}
    found = collect(args.out / f"{args.part}.json", variants, args.seeds, job, arguments)
    form = {"scale": 1.0, "digits": 2} if language else {}
    lines = [f"| variant | model of | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    for name, runs in found.items():
        if runs[0]["levels"]:
            for rows in zip(*(run["levels"] for run in runs), strict=True):
                cells = [cell([row[column] for row in rows], **form) for column in COLUMNS]
                lines.append(f"| {name} | {rows[0]['level']} | {' | '.join(cells)} |")
            continue
        means = [sum(run["own"].values()) / len(run["own"]) for run in runs]
        means = [math.exp(mean) for mean in means] if language else means
        whose = {"fedavg": "server", "FedAvg": "server"}.get(name, "client")
        lines.append(
            f"| {name} | {whose} | {cell(means, **form)} | | {cell([run['union'] for run in runs], **form)} | |"
        )
    command = f"python benchmarks/text.py {args.part} --seeds {args.seeds} --rounds {args.rounds}"
    unit = "Perplexity a byte (less is better), geometric mean over clients." if language else "Accuracy in per cent."
    report(args.out / f"{args.part}.md", command, args.seeds, unit, lines)


if __name__ == "__main__":
    main()
