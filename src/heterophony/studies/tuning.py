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
    planned = true                  # whether these are the setting's own for the method, which may differ by method
    changes = { }                   # what `--set` said for all trials, by whole names
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from heterophony.base import toml
from heterophony.base.disk import Disk
from heterophony.base.seal import opened, sealed
from heterophony.base.seeds import derive
from heterophony.catalogue import registry
from heterophony.federation import Federation
from heterophony.kernel.compute import Compute
from heterophony.settings import Setting, SettingError, assemble
from heterophony.settings.assemble import PARTS
from heterophony.tables.metrics import diverged
from heterophony.tables.result import Result

By = Literal["acc", "own", "loss"]
Run = Callable[[Federation, int], Result]


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
    compute: Compute = Compute(),
    tried: Path | None = None,
    run: Run = lambda federation, rounds: federation.run(rounds),
    tell: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Run the trials; `tried` is the file that remembers them, `run` runs one federation, `tell` hears of each."""
    if not setting.changed(_theirs(changes)).data.validation:
        raise SettingError(f"{setting.name} has no validation data to choose on: set data.validation")
    plan = setting.plan(method)[0]
    rounds = rounds or plan
    whole, known = _whole(method, changes), _known(tried)
    found = []
    for options in combinations(wanted, budget):
        values: dict[str, float | None] = {}
        lost = []
        for seed in seeds:
            key = _key(method, setting, options, changes, seed, rounds, by)
            if key not in known:
                merged = {**(changes or {}), **options, "evaluate": rounds}
                made = assemble(method, setting, seed=seed, changes=merged, root=root, compute=compute)
                result = run(_blind(made), rounds)
                known[key] = _value(result, by), bool(diverged(result.table, result.headline))
                if tried is not None:
                    _append(tried, key, *known[key])
            values[str(seed)] = known[key][0]
            lost += [str(seed)] if known[key][1] else []
        found.append(Trial(method, setting.name, options, values, rounds, by, tuple(lost), rounds == plan, whole))
        tell(found[-1])
    return found


def best(trials: Sequence[Trial]) -> Trial:
    """The trial with the best value, the earliest of equals."""
    known = [(trial, value) for trial in trials if (value := trial.value) is not None]
    if not known:
        lost = sum(bool(trial.diverged) for trial in trials)
        why = "every run diverged" if lost == len(trials) else f"{lost} diverged"
        why = why if lost else "nobody was evaluated in the last round"
        raise SettingError(f"none of {len(trials)} trials came to a value: {why}")
    sign = -1 if known[0][0].by == "loss" else 1
    return max(known, key=lambda pair: sign * pair[1])[0]


def edges(trials: Sequence[Trial], chosen: Trial) -> list[str]:
    """Options whose best value is the largest or smallest number that was tried: beyond it may be a better one."""
    said = []
    for name, value in chosen.options.items():
        tried = {trial.options[name] for trial in trials if _is_number(trial.options[name])}
        if len(tried) > 1 and _is_number(value) and value in (min(tried), max(tried)):
            said.append(f"{name} = {value} is the {'largest' if value == max(tried) else 'smallest'} that was tried")
    return said


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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


def _whole(method: str, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Changes by whole names, so that two methods' can be compared."""
    entry = registry.lookup(method)
    theirs = (*PARTS, "rounds", "seed")  # of the last two `assemble` says that they are no options
    return {key if key.split(".")[0] in theirs else entry.full_name(key): v for key, v in (changes or {}).items()}


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


def _known(path: Path | None) -> dict[str, tuple[float | None, bool]]:
    if path is None or not path.exists():
        return {}
    found = {}
    try:
        text = path.read_text(encoding="utf-8")
        for line in text[: text.rfind("\n") + 1].splitlines(keepends=True):  # the last one may be half written
            row, _ = opened(line.encode())
            value = row.pop("value"), row.pop("diverged", False)
            found[json.dumps(row, sort_keys=True)] = value
    except KeyError:
        raise SettingError(f"{path} is damaged: a line of it is no trial") from None
    except ValueError as error:
        raise SettingError(f"{path} is damaged: of a line, {error}") from None
    return found


def _append(path: Path, key: str, value: float | None, lost: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    row = {**json.loads(key), "value": value, **({"diverged": True} if lost else {})}
    Disk(private=False).replace(path, whole.encode() + sealed(row))


def write(path: Path, trials: Sequence[Trial], budget: int) -> Trial:
    """Put the best trial into the TOML file, beside what is there; every method on a setting has the same chances."""
    chosen, found = best(trials), read(path) if path.exists() else {}
    entry: dict[str, Any] = {"options": chosen.options, "value": chosen.value, "by": chosen.by, "budget": budget}
    entry |= {"tried": len(trials), "seeds": [int(seed) for seed in chosen.values], "rounds": chosen.rounds}
    entry |= {"planned": chosen.planned, "changes": chosen.changes}
    for name, other in found.get(chosen.setting, {}).items():
        if name != chosen.method and (unlike := _unlike(name, other, chosen.method, entry)):
            what, theirs, ours = unlike
            raise SettingError(
                f"{path}: {name} had {what} {theirs}, {chosen.method} would have {ours}: "
                "give all the same, or write to another file"
            )
    found.setdefault(chosen.setting, {})[chosen.method] = entry
    text = "# Chosen on validation data alone by `heterophony tune`; `heterophony run --tuned` reads it.\n"
    for setting, methods in found.items():
        for method, values in methods.items():
            text += f"\n[{toml.key(setting)}.{toml.key(method)}]\n"
            text += "".join(f"{key} = {toml.value(value)}\n" for key, value in values.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    Disk(private=False).replace(path, text.encode())
    return chosen


def _unlike(name: str, theirs: Mapping[str, Any], method: str, ours: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first thing in which two methods' chances differ."""
    for key in ("budget", "seeds", "by"):
        if theirs.get(key, ours[key]) != ours[key]:
            return key, theirs[key], ours[key]
    own_plans = theirs.get("planned", True) and ours["planned"]
    if not own_plans and theirs.get("rounds", ours["rounds"]) != ours["rounds"]:
        return "rounds", theirs["rounds"], ours["rounds"]
    before, now = theirs.get("changes", {}), ours["changes"]
    for key in {**before, **now}:
        theirs_too = ":" in name or _has(name, key)  # what only the file names is not imported
        if before.get(key) != now.get(key) and theirs_too and _has(method, key):
            return f"--set {key}", *(each.get(key, "as it is") for each in (before, now))
    return None


def _has(method: str, key: str) -> bool:
    """Whether a change concerns a method at all; one that is not here might have had it."""
    try:
        return key.split(".")[0] in PARTS or key in registry.lookup(method).options()
    except ValueError:
        return True


def read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """setting -> method -> what was found."""
    found = toml.parsed(toml.text(path, SettingError), path, SettingError)
    if not all(isinstance(methods, dict) and all(map(_tuned, methods.values())) for methods in found.values()):
        raise SettingError(f"{path} is not a file that `heterophony tune` wrote")
    return found


def _tuned(entry: Any) -> bool:
    return isinstance(entry, dict) and {"options", "budget", "seeds"} <= entry.keys()


def options(path: Path, setting: str, method: str) -> dict[str, Any]:
    """What was found for a method on a setting, as changes for `assemble`."""
    found = read(path).get(setting, {})
    if method not in found:
        known = ", ".join(found) or "no method"
        raise SettingError(f"{path} has nothing for {method} on {setting}; it has {known} there")
    return dict(found[method]["options"])
