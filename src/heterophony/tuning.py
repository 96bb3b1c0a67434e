"""Fair tuning: options of a method chosen on validation data alone, with the same budget for every method.

A trial is a run with some options for every seed; its value is the mean over seeds of a figure on the split
"validation" after the last round. Test data are not evaluated at all. All trials go to a file of JSON lines (what is
there is not run again), what was found to a TOML file that `heterophony run --tuned` and `compare` read:

    [SETTING.METHOD]
    options = { "local.lr" = 0.1 }  # by whole names
    value = 0.83                    # of the best trial, the earliest of equals
    by = "acc"                      # figure: acc (all validation sets), own (a participant's domain), loss
    budget = 6                      # trials that every method on this setting may have
    tried = 6
    seeds = [0, 1]
    rounds = 10
"""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from heterophony import registry, toml
from heterophony.federation import Federation
from heterophony.record.disk import Disk
from heterophony.record.result import Result
from heterophony.seeds import derive
from heterophony.settings import Setting, SettingError, assemble

By = Literal["acc", "own", "loss"]
Run = Callable[[Federation, int], Result]


@dataclass(frozen=True)
class Trial:
    """Options and what they were worth: `values` by seed, None where a run came to nothing (or diverged)."""

    method: str
    setting: str
    options: dict[str, Any]
    values: dict[str, float | None]
    rounds: int
    by: By

    @property
    def value(self) -> float | None:
        known = [value for value in self.values.values() if value is not None]
        return sum(known) / len(known) if known and len(known) == len(self.values) else None


def grid(texts: Sequence[str], method: str) -> dict[str, list[Any]]:
    """`lr=0.01,0.1` for each option, by its whole name; values as TOML reads them, or words without quotes."""
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
    """All combinations in order; where they are more than the budget, so many of them, drawn by the seed."""
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
    compute: Mapping[str, Any] | None = None,
    tried: Path | None = None,
    run: Run = lambda federation, rounds: federation.run(rounds),
    tell: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Run the trials; `tried` is the file that remembers them, `run` runs one federation, `tell` hears of each."""
    if not setting.changed(_theirs(changes)).data.validation:
        raise SettingError(f"{setting.name} has no validation data to choose on: set data.validation")
    rounds = rounds or setting.plan(method)[0]
    known = _known(tried)
    found = []
    for options in combinations(wanted, budget):
        values: dict[str, float | None] = {}
        for seed in seeds:
            key = _key(method, setting, options, changes, seed, rounds, by)
            if key not in known:
                merged = {**(changes or {}), **options, "evaluate": rounds}
                made = assemble(method, setting, seed=seed, changes=merged, root=root, compute=compute)
                known[key] = _value(run(_blind(made), rounds), by)
                if tried is not None:
                    _append(tried, key, known[key])
            values[str(seed)] = known[key]
        found.append(Trial(method, setting.name, options, values, rounds, by))
        tell(found[-1])
    return found


def best(trials: Sequence[Trial]) -> Trial:
    """The trial with the best value, the earliest of equals."""
    known = [(trial, value) for trial in trials if (value := trial.value) is not None]
    if not known:
        raise SettingError(f"none of {len(trials)} trials came to a value: every run diverged")
    sign = -1 if known[0][0].by == "loss" else 1
    return max(known, key=lambda pair: sign * pair[1])[0]


def _blind(federation: Federation) -> Federation:
    """The same federation without any test data."""
    tests = {
        name: {"validation": splits["validation"]}
        for name, splits in federation.tests.items()
        if isinstance(splits, Mapping) and "validation" in splits
    }
    return replace(federation, tests=tests, private_tests={})


def _value(result: Result, by: By) -> float | None:
    found = result.metrics(split="validation")
    return {"acc": found.acc, "own": found.wdp, "loss": found.loss}[by]


def _theirs(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (changes or {}).items() if key.split(".")[0] == "data"}


# -- files -----------------------------------------------------------------------------------------------------
def _key(
    method: str,
    setting: Setting,
    options: Mapping[str, Any],
    changes: Mapping[str, Any] | None,
    seed: int,
    rounds: int,
    by: By,
) -> str:
    """What a run is, in one line: the setting as a whole, so that a changed file is another run."""
    whole = {"method": method, "setting": setting.plain(), "options": dict(options), "changes": dict(changes or {})}
    return json.dumps({**whole, "seed": seed, "rounds": rounds, "by": by}, sort_keys=True)


def _known(path: Path | None) -> dict[str, float | None]:
    if path is None or not path.exists():
        return {}
    found = {}
    try:
        text = path.read_text(encoding="utf-8")
        for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may be half written
            row = json.loads(line)
            value = row.pop("value")
            found[json.dumps(row, sort_keys=True)] = value
    except (ValueError, KeyError, AttributeError):
        raise SettingError(f"{path} is damaged: a line of it is no trial") from None
    return found


def _append(path: Path, key: str, value: float | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    Disk().replace(path, f"{whole}{json.dumps({**json.loads(key), 'value': value})}\n".encode())


def write(path: Path, trials: Sequence[Trial], budget: int) -> Trial:
    """Put the best trial into the TOML file, beside what is there; every method on a setting has the same budget."""
    chosen, found = best(trials), read(path) if path.exists() else {}
    seeds = [int(seed) for seed in chosen.values]
    for name, other in found.get(chosen.setting, {}).items():
        if name != chosen.method and (other["budget"], other["seeds"]) != (budget, seeds):
            raise SettingError(
                f"{path}: {name} had {other['budget']} trials with seeds {other['seeds']}, {chosen.method} would have "
                f"{budget} with {seeds}: give all the same, or write to another file"
            )
    entry: dict[str, Any] = {"options": chosen.options, "value": chosen.value, "by": chosen.by, "budget": budget}
    entry |= {"tried": len(trials), "seeds": seeds, "rounds": chosen.rounds}
    found.setdefault(chosen.setting, {})[chosen.method] = entry
    text = "# Chosen on validation data alone by `heterophony tune`; `heterophony run --tuned` reads it.\n"
    for setting, methods in found.items():
        for method, values in methods.items():
            text += f"\n[{toml.key(setting)}.{toml.key(method)}]\n"
            text += "".join(f"{key} = {toml.value(value)}\n" for key, value in values.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    Disk().replace(path, text.encode())
    return chosen


def read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """setting -> method -> what was found."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        entries = [entry for methods in found.values() for entry in methods.values()]
        if not all({"options", "budget", "seeds"} <= entry.keys() for entry in entries):
            raise ValueError
    except OSError as error:
        raise SettingError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, AttributeError):
        raise SettingError(f"{path} is not a file that `heterophony tune` wrote") from None
    return found


def options(path: Path, setting: str, method: str) -> dict[str, Any]:
    """What was found for a method on a setting, as changes for `assemble`."""
    found = read(path).get(setting, {})
    if method not in found:
        known = ", ".join(found) or "no method"
        raise SettingError(f"{path} has nothing for {method} on {setting}; it has {known} there")
    return dict(found[method]["options"])
