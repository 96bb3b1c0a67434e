"""Fair tuning: options of a method chosen on validation data alone, with the same budget for every method.

A trial is a run with some options for every seed. Its value is the mean over seeds of a figure on the split
"validation" after the last round. Test data are not evaluated at all. `tried.py` remembers all runs, so that none is
done twice. `tuned.py` writes what was found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from heterophony.base.seeds import derive
from heterophony.catalogue import registry
from heterophony.federation import Federation
from heterophony.kernel.compute import Compute
from heterophony.settings import Setting, SettingError, assemble, score_of
from heterophony.settings.assemble import PARTS
from heterophony.studies.tried import Outcome, Tried, key_of
from heterophony.tables.metrics import diverged
from heterophony.tables.result import Result
from heterophony.tasks.score import ACCURACY, Score

By = str  # "acc", "own", or the name of another score of the task
Runner = Callable[[Federation, int], Result]


@dataclass(frozen=True)
class Trial:
    """Options and what they were worth: `values` by seed, None where a run came to nothing."""

    method: str
    setting: str
    options: dict[str, Any]
    values: dict[str, float | None]
    rounds: int
    by: By
    diverged: tuple[str, ...] = ()  # seeds in which models gave outputs that are no numbers
    planned: bool = True  # whether the rounds are those of the setting
    changes: dict[str, Any] = field(default_factory=dict)
    score: Score = ACCURACY  # what the values are

    @property
    def value(self) -> float | None:
        """Return the mean over seeds; None: a run came to nothing."""
        known = [value for value in self.values.values() if value is not None]
        return sum(known) / len(known) if known and len(known) == len(self.values) else None


def grid(texts: Sequence[str], method: str) -> dict[str, list[Any]]:
    """Read `lr=0.01,0.1` for each option, by its whole name. Values are as TOML reads them, or words without quotes."""
    entry, found = registry.lookup(method), dict[str, list[Any]]()
    for text in texts:
        key, _, values = text.partition("=")
        name, parsed = registry.parse(f"{key}=[{values}]")
        if not isinstance(parsed, list):  # words without quotes
            parsed = [registry.parse(f"{key}={part.strip()}")[1] for part in values.split(",")]
        if not parsed or not values.strip():
            raise SettingError(f"--grid {text}: write key=value,value,...")
        found[entry.full_name(name)] = parsed
        for value in parsed:
            entry.build({name: value})  # says what is wrong with it before anything is trained
    if not found:
        raise SettingError("a grid needs at least one option: --grid lr=0.01,0.1")
    return found


def combinations(wanted: Mapping[str, Sequence[Any]], budget: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return all combinations in order. Of more than the budget, so many are drawn by the seed."""
    if budget < 1:
        raise SettingError(f"a budget is at least one trial, got {budget}")
    every = [dict(zip(wanted, values, strict=True)) for values in product(*wanted.values())]
    if len(every) <= budget:
        return every
    places = random.Random(derive(seed, "tuning")).sample(range(len(every)), budget)
    return [every[place] for place in sorted(places)]


def tune(
    method: str,
    setting: Setting,
    wanted: Mapping[str, Sequence[Any]],
    *,
    budget: int,
    seeds: Sequence[int] = (0,),
    by: By = "acc",
    rounds: int | None = None,
    changes: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    compute: Compute = Compute(),
    tried: Path | None = None,
    run: Runner = lambda federation, rounds: federation.run(rounds),
    tell: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Run the trials.

    `tried` is the file that remembers them, `run` runs one federation, and `tell` hears of each trial.
    """
    own = setting.changed(_theirs(changes)).data
    if not own.validation and own.world is None:
        raise SettingError(_nothing_to_choose_on(setting))
    score = score_of(setting, "" if by in ("acc", "own") else by)
    plan = setting.plan(method)[0]
    rounds = rounds or plan
    whole, memory = _whole(method, changes), Tried(tried)
    found = []
    for options in combinations(wanted, budget):
        merged = {**(changes or {}), **options, "evaluate": rounds}
        outcomes: dict[str, Outcome] = {}
        for seed in seeds:
            key = key_of(method, setting, options, changes, seed, rounds, by)
            if key not in memory.outcomes:
                made = assemble(method, setting, seed=seed, changes=merged, root=root, compute=compute)
                memory.add(key, _outcome(run(_blind(made, setting), rounds), by))
            outcomes[str(seed)] = memory.outcomes[key]
        trial = Trial(
            method=method,
            setting=setting.name,
            options=options,
            values={seed: outcome.value for seed, outcome in outcomes.items()},
            rounds=rounds,
            by=by,
            diverged=tuple(seed for seed, outcome in outcomes.items() if outcome.diverged),
            planned=rounds == plan,
            changes=whole,
            score=score,
        )
        found.append(trial)
        tell(trial)
    return found


def best(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the best value, the earliest of equals."""
    known = [(trial, value) for trial in trials if (value := trial.value) is not None]
    if not known:
        lost = sum(bool(trial.diverged) for trial in trials)
        if not lost:
            why = "nobody was evaluated in the last round"
        else:
            why = "every run diverged" if lost == len(trials) else f"{lost} diverged"
        raise SettingError(f"none of {len(trials)} trials came to a value: {why}")
    sign = 1 if known[0][0].score.higher else -1
    return max(known, key=lambda pair: sign * pair[1])[0]


def edges(trials: Sequence[Trial], chosen: Trial) -> list[str]:
    """Say whose best value is the largest or smallest number that was tried: beyond it may be a better one."""
    said = []
    for name, value in chosen.options.items():
        tried = {trial.options[name] for trial in trials if _is_number(trial.options[name])}
        if len(tried) > 1 and _is_number(value) and value in (min(tried), max(tried)):
            said.append(f"{name} = {value} is the {'largest' if value == max(tried) else 'smallest'} that was tried")
    return said


def _nothing_to_choose_on(setting: Setting) -> str:
    return f"{setting.name} has no validation data to choose on: set data.validation"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _blind(federation: Federation, setting: Setting) -> Federation:
    """Return the same federation without any test data. Raise where no validation data are left."""
    tests = {
        name: {"validation": splits["validation"]}
        for name, splits in federation.tests.items()
        if isinstance(splits, Mapping) and "validation" in splits
    }
    if not tests:
        raise SettingError(_nothing_to_choose_on(setting))
    return replace(federation, tests=tests, private_tests={})


def _outcome(result: Result, by: By) -> Outcome:
    """Return what a run was worth on validation data."""
    metrics = result.metrics(split="validation")
    value = metrics.wdp if by == "own" else metrics.get(by)
    return Outcome(value, bool(diverged(result.table, result.headline)))


def _theirs(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (changes or {}).items() if key.split(".")[0] == "data"}


def _whole(method: str, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return changes by whole names, so that those of two methods can be compared."""
    entry = registry.lookup(method)
    theirs = (*PARTS, "rounds", "seed")  # of the last two `assemble` says that they are no options
    return {key if key.split(".")[0] in theirs else entry.full_name(key): v for key, v in (changes or {}).items()}
