"""What liars cost: one method a family, by the mean and by a robust rule, under up to ten attacks, by how many lie.

python benchmarks/robustness.py --out runs/robustness run [--part 0/2] [--until 21:30]
python benchmarks/robustness.py --out runs/robustness table
python benchmarks/robustness.py --out runs/robustness-choice choose

Ten participants share rows of USPS alike; its 2,007 test rows are the test set. `choose` tries rules for each family on
validation rows, with seeds that `run` does not have. `run` appends a line a run to runs.jsonl, and does not run again
what is there: several processes may each do a part of it. `table` makes the table, the losses and the heat map of it.

A figure is the accuracy after the last round of the server's model, or the mean of the honest participants' own. The
loss is what the plain mean has without liars, by the same seed and the same participants, less that figure.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from heterophony.engines import local
from heterophony.kernel.compute import Compute
from heterophony.report.figure import Figure, Heat, Panel
from heterophony.report.static import save
from heterophony.settings import Setting, assemble
from heterophony.tables.interval import Interval, interval
from tables import report

PARTICIPANTS = 10
ROUNDS = 30
GOAL = 0.02  # a loss below it, with its whole interval, is what each family should have an option for
COUNTS = (0, 1, 2, 3)  # of liars
SEEDS, FIRST = 10, 2  # the first seeds say which two attacks come first in the others
FIRST_CHOICE = 100  # the seeds of `choose` begin here

WORLD: dict[str, Any] = {
    "name": "robustness",
    "summary": "USPS among ten participants alike",
    "rounds": ROUNDS,
    "evaluate": ROUNDS,
    "data": {"source": "usps", "rows": 4700, "clients": PARTICIPANTS, "public": {"fraction": 0.05}},
    "models": {"participants": "mlp"},
    "local": {"steps": 3, "batch": 128, "lr": 0.1, "momentum": 0.9, "optimiser": "sgd"},
}
EDGES = {f"e{edge}": [f"c{5 * edge + i}" for i in range(5)] for edge in range(2)}
METHODS: dict[str, dict[str, Any]] = {  # one a family
    "fedavg": {},
    "hierfavg": {"topology.tree": {"root": EDGES}},
    "ditto": {},
    "fml": {"local.lr": 0.1},
    "feddf": {},
    "fedmd": {"measure": "ce", "distil.lr": 0.05, "distil.momentum": 0.9, "local.initial": 2},
    "cronus": {"local.initial": 2},
    "fedproto": {},
}
FAMILY = {
    "fedavg": "weights",
    "hierfavg": "weights in a tree",
    "ditto": "personal models",
    "fml": "a common network beside one's own",
    "feddf": "weights and an ensemble",
    "fedmd": "logits",
    "cronus": "soft labels",
    "fedproto": "class means",
}
OUTPUTS = ("fedmd", "cronus", "fedproto")  # what travels is no weights
RULES: dict[str, Any] = {
    "mean": "mean",
    "median": "median",
    "multi-krum": "multi-krum",
    "trimmed+mix": {"rule": "trimmed", "mix": True},
    "filter": "filter",
    "trust": "trust",
}
TRUSTING = ("fedavg", "ditto", "fml")  # whose server has a model of its own, which it can train on public rows
CHOSEN = {
    "fedavg": "trimmed+mix",
    "hierfavg": "median",
    "ditto": "trimmed+mix",
    "fml": "trimmed+mix",
    "feddf": "multi-krum",
    "fedmd": "median",
    "cronus": "median",
    "fedproto": "trimmed+mix",
}
ATTACKS = ("sign-flip", "gaussian", "alie", "ipm", "huge", "nan", "free-rider", "label-flip", "backdoor", "soft-labels")
OF_MEAN = ("sign-flip", "huge", "label-flip")  # the attacks that the mean meets
NOBODY = "nobody"
TRIED = ("sign-flip", "ipm", "label-flip")  # the attacks of `choose`


class Case(NamedTuple):
    """One run: a method by a rule, an attack, how many lie, and the seed."""

    method: str
    rule: str
    attack: str
    liars: int
    seed: int


Runs = dict[Case, dict[str, float | None]]


def attacks(method: str) -> list[str]:
    """Return the attacks that change anything here: weights hold no soft labels; outputs have no steps of the past."""
    without = "alie" if method in OUTPUTS else "soft-labels"
    return [attack for attack in ATTACKS if attack != without]


def plan(chosen: dict[str, str], found: Runs) -> Iterator[Case]:
    """Yield the runs of the table, the most important ones first.

    The goal is decided by the chosen rules with three liars. The first seeds meet all attacks, then all seeds meet the
    two attacks that cost most by then. Two liars come next, by the same two attacks. Then all seeds meet all attacks
    of three, so that the attack that costs most is found with all of them. The mean and one liar come last.
    """

    yield from _many(chosen, range(FIRST))
    for seed in range(SEEDS):
        yield from (case for method in chosen for case in cases(method, "mean", 0, seed))
        yield from _worst(chosen, found, 3, [seed])
    yield from _means(chosen, 2, [0])
    yield from _worst(chosen, found, 2, range(SEEDS))
    yield from _many(chosen, range(SEEDS))
    for liars in (2, 3, 1):
        yield from _means(chosen, liars, range(SEEDS))
    yield from _worst(chosen, found, 1, range(SEEDS))


def _many(chosen: dict[str, str], seeds: Iterable[int]) -> Iterator[Case]:
    """Yield the runs without liars, and those of all attacks by three."""
    for seed in seeds:
        for method, rule in chosen.items():
            yield from cases(method, "mean", 0, seed)
            yield from cases(method, rule, 0, seed)
            yield from cases(method, rule, 3, seed)


def _worst(chosen: dict[str, str], found: Runs, liars: int, seeds: Iterable[int]) -> Iterator[Case]:
    """Yield the runs of the rules under the two attacks that cost most with the first seeds."""
    for seed in seeds:
        for method, rule in chosen.items():
            yield from cases(method, rule, liars, seed, two_worst(found, method, rule, FIRST))


def _means(chosen: dict[str, str], liars: int, seeds: Iterable[int]) -> Iterator[Case]:
    """Yield the runs of the mean that are lied to."""
    for seed in seeds:
        for method in chosen:
            yield from cases(method, "mean", liars, seed, OF_MEAN)


def cases(method: str, rule: str, liars: int, seed: int, only: Sequence[str] = ATTACKS) -> Iterator[Case]:
    """Yield the runs of a cell of the table."""
    for attack in attacks(method) if liars else [NOBODY]:
        if not liars or attack in only:
            yield Case(method, rule, attack, liars, seed)


def two_worst(found: Runs, method: str, rule: str, seeds: int) -> list[str]:
    """Return the two attacks that cost most with the first seeds; none before all of these runs are there."""
    cost = {}
    for attack in attacks(method):
        lost = [loss(found, method, rule, attack, 3).get(seed) for seed in range(seeds)]
        known = [one for one in lost if one is not None]
        if len(known) < seeds:
            return []
        cost[attack] = math.fsum(known)
    return sorted(cost, key=lambda attack: -cost[attack])[:2]


def choices() -> Iterator[Case]:
    """Yield the runs by which a rule is chosen for each family."""
    for method in METHODS:
        for rule in RULES:
            if (rule != "filter" or method in OUTPUTS) and (rule != "trust" or method in TRUSTING):
                for attack in (NOBODY, *TRIED):
                    yield Case(method, rule, attack, 0 if attack == NOBODY else 3, FIRST_CHOICE)


def one(case: Case, split: str) -> dict[str, float | None]:
    """Return the accuracy of each honest participant, or of the server; None where a model's outputs are no numbers."""
    changes = {**METHODS[case.method], "cohort.combine": _rule(case)}
    if case.liars:
        changes |= {"attack.how": case.attack, "attack.who": case.liars}
    if split == "validation":
        changes |= {"data.validation": 0.3}
    made = assemble(case.method, Setting.of(WORLD), seed=case.seed, changes=changes, compute=Compute(executor="eager"))
    made = replace(made, tests={name: {split: splits[split]} for name, splits in made.tests.items() if split in splits})
    liars = set(made.attack.who) if made.attack else set()
    found = local(made).run(ROUNDS)
    table = found.table.select(product=made.method.headline, quantity="accuracy", split=split).last()
    rows = [row for row in table.rows if row["node"] not in liars]
    return {row["node"]: None if row["sum"] is None else row["sum"] / row["n"] for row in rows}


def _rule(case: Case) -> Any:
    """Return the rule as the option takes it. In the tree, the root has two children, of whom no rule can doubt one."""
    return {"root": "mean", "*": RULES[case.rule]} if case.method == "hierfavg" else RULES[case.rule]


# -- runs that are kept --------------------------------------------------------------------------------------------
class Store:
    """Runs in a file of lines. A line that was torn by a kill is left out, and its run is made again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[Case, dict[str, float | None]]:
        found = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row["world"] == _world(row["case"][0]):
                found[Case(*row["case"])] = row["accuracy"]
        return found

    def add(self, case: Case, accuracy: dict[str, float | None], seconds: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = {"case": case, "accuracy": accuracy, "world": _world(case.method), "seconds": round(seconds, 2)}
        with self.path.open("a") as file:
            file.write("\n" + json.dumps(row) + "\n")  # a torn line before it stays alone


def _world(method: str) -> int:
    """Return what tells whether a run was made with the present data, rounds and rates."""
    return zlib.crc32(json.dumps([WORLD, METHODS[method]], sort_keys=True).encode())


def work(store: Store, asked: Callable[[Runs], Iterable[Case]], split: str, part: str, until: str | None) -> None:
    """Make the runs that are not there yet: those of this part, until the hour has come."""
    mine, parts = map(int, part.split("/"))
    while True:
        known = store.read()
        left = [case for case in asked(known) if case not in known]
        own = [case for case in left if zlib.crc32(repr(case).encode()) % parts == mine]
        if until is not None and f"{datetime.now():%H:%M}" >= until:
            print("the hour has come")
            return
        if not left:
            return
        if not own:  # what the other parts are at may decide about what is to be done
            time.sleep(5)
            continue
        began = time.process_time()
        accuracy = one(own[0], split)
        store.add(own[0], accuracy, time.process_time() - began)
        print(*own[0], f"{mean_of(accuracy):.3f}", flush=True)


# -- what becomes of them ------------------------------------------------------------------------------------------
def mean_of(accuracy: dict[str, float | None], nodes: Any = None) -> float:
    """Return the mean accuracy. A lost model has none at all, nor has a run that no honest participant came through."""
    named = accuracy if nodes is None else {name: accuracy[name] for name in nodes}
    return sum(value or 0.0 for value in named.values()) / max(1, len(named))


def seeds_of(found: Runs, method: str, rule: str, attack: str, liars: int) -> dict[int, dict[str, float | None]]:
    """Return the runs of a cell's attack by seed."""
    return {case.seed: own for case, own in found.items() if case[:4] == (method, rule, attack, liars)}


def worst(found: Runs, method: str, rule: str, liars: int) -> tuple[str, list[float]] | None:
    """Return the attack with the lowest mean accuracy over seeds, and its figures."""
    made = {}
    for attack in attacks(method) if liars else [NOBODY]:
        if runs := seeds_of(found, method, rule, attack, liars):
            made[attack] = [mean_of(own) for _, own in sorted(runs.items())]
    if not made:
        return None
    attack = min(made, key=lambda name: math.fsum(made[name]) / len(made[name]))
    return attack, made[attack]


def loss(found: Runs, method: str, rule: str, attack: str, liars: int) -> dict[int, float]:
    """Return by seed what a rule loses against the plain mean without liars, by the same participants."""
    calm = seeds_of(found, method, "mean", NOBODY, 0)
    runs = seeds_of(found, method, rule, attack, liars)
    return {seed: mean_of(calm[seed], own or None) - mean_of(own) for seed, own in runs.items() if seed in calm}


def heaviest(found: Runs, method: str, rule: str) -> tuple[str, Interval] | None:
    """Return the attack by three liars that costs most, and the interval of its loss."""
    made = {attack: interval(list(loss(found, method, rule, attack, 3).values())) for attack in attacks(method)}
    known = {attack: own for attack, own in made.items() if own is not None}
    if len(known) < len(made):
        return None
    return max(known.items(), key=lambda pair: pair[1].mean)


def table(found: Runs, chosen: dict[str, str], out: Path) -> None:
    """Write the table of worst attacks, the losses with 30 % liars, every cell, and the heat map."""
    arms = [(method, rule) for method in METHODS for rule in dict.fromkeys(("mean", chosen[method]))]
    counts = COUNTS
    lines = [f"| | {' | '.join(f'{n} of {PARTICIPANTS}' for n in counts)} |", "|---" * (len(counts) + 1) + "|"]
    heat: list[list[float | None]] = []
    for method, rule in arms:
        cells = [worst(found, method, rule, liars) for liars in counts]
        lines.append(f"| {method} {rule} | {' | '.join(map(_cell, cells))} |")
        heat.append([None if own is None else 100 * math.fsum(own[1]) / len(own[1]) for own in cells])
    lines += ["", "| family | rule | attack that costs most | loss | seeds | under 2 points |", "|---" * 6 + "|"]
    lines += [_judged(found, method, chosen[method]) for method in METHODS]
    lines += ["", *_whole(found, arms)]
    note = (
        f"{PARTICIPANTS} participants; accuracy of the honest in per cent under the worst attack that was tried. "
        "Behind it in brackets: that attack, and how many seeds."
    )
    seeds = 1 + max(case.seed for case in found)
    report(out / "table.md", "python benchmarks/robustness.py --out runs/robustness table", seeds, note, lines)
    caption = "Accuracy of honest participants (%) under the worst attack tried, by the share of liars."
    names, shares = [f"{method} {rule}" for method, rule in arms], [f"{10 * n} %" for n in counts]
    panel = Panel([Heat(heat, names, shares, low=0, high=100, digits=0)], x="liars")
    save(Figure("robustness", "What liars cost", caption, caption, [panel], width="middle"), out)


def _cell(found: tuple[str, list[float]] | None) -> str:
    if found is None:
        return "-"
    own = interval(found[1])
    return f"{own.text() if own else '-'} ({found[0]}, {len(found[1])})" if found[0] != NOBODY else own.text()


def _judged(found: Runs, method: str, rule: str) -> str:
    """Return a line: what the chosen rule loses with three liars, and whether the whole interval is below the goal."""
    own = heaviest(found, method, rule)
    if own is None:
        return f"| {FAMILY[method]} ({method}) | {rule} | - | - | - | not measured |"
    attack, lost = own
    if lost.half is None:
        verdict = "not told by one seed"
    else:
        high, low = lost.mean + lost.half, lost.mean - lost.half
        verdict = "yes" if high < GOAL else "no" if low >= GOAL else "open"
    return f"| {FAMILY[method]} ({method}) | {rule} | {attack} | {lost.text()} | {lost.n} | {verdict} |"


def _whole(found: Runs, arms: list[tuple[str, str]]) -> list[str]:
    """Return the table of all attacks by three liars."""
    lines = [f"| 3 of {PARTICIPANTS} | {' | '.join(ATTACKS)} |", "|---" * (len(ATTACKS) + 1) + "|"]
    for method, rule in arms:
        cells = []
        for attack in ATTACKS:
            runs = seeds_of(found, method, rule, attack, 3)
            own = interval([mean_of(accuracy) for accuracy in runs.values()])
            cells.append("" if own is None else own.text())
        lines.append(f"| {method} {rule} | {' | '.join(cells)} |")
    return lines


def chosen_by(found: Runs) -> list[str]:
    """Return the table of what each rule has on validation rows under the worst of the attacks tried."""
    lines = ["| | rule | nobody lies | worst of those tried |", "|---|---|---|---|"]
    for method in METHODS:
        for rule in RULES:
            own = {a: mean_of(v) for (m, r, a, _, _), v in found.items() if (m, r) == (method, rule)}
            if len(own) == len(TRIED) + 1:
                attack = min(TRIED, key=lambda name: own[name])
                lines.append(f"| {method} | {rule} | {100 * own[NOBODY]:.1f} | {100 * own[attack]:.1f} ({attack}) |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table", "choose"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", default="0/1", help="which of how many parts of the runs")
    parser.add_argument("--until", help="an hour, such as 21:30, after which no run begins")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    store = Store(args.out / "runs.jsonl")
    if args.what == "choose":
        work(store, lambda _: [c for c in choices() if c.method in args.methods], "validation", args.part, args.until)
        print("\n".join(chosen_by(store.read())))
    elif args.what == "run":
        chosen = {method: CHOSEN[method] for method in args.methods}
        work(store, lambda found: plan(chosen, found), "test", args.part, args.until)
    else:
        table(store.read(), CHOSEN, args.out)


if __name__ == "__main__":
    main()
