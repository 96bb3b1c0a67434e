"""The TOML file with the options that tuning found, which `heterophony run --tuned` and `compare` read.

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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heterophony.base import toml
from heterophony.base.disk import Disk
from heterophony.catalogue import registry
from heterophony.settings import SettingError
from heterophony.settings.assemble import PARTS
from heterophony.studies.tuning import Trial, best


def write(path: Path, trials: Sequence[Trial], budget: int) -> Trial:
    """Put the best trial into the TOML file, beside what is there, and return it.

    Raise where another method on the same setting had other chances.
    """
    chosen, found = best(trials), read(path) if path.exists() else {}
    entry = {
        "options": chosen.options,
        "value": chosen.value,
        "by": chosen.by,
        "budget": budget,
        "tried": len(trials),
        "seeds": [int(seed) for seed in chosen.values],
        "rounds": chosen.rounds,
        "planned": chosen.planned,
        "changes": chosen.changes,
    }
    for name, other in found.get(chosen.setting, {}).items():
        if name != chosen.method and (unlike := _unlike(name, other, chosen.method, entry)):
            what, theirs, ours = unlike
            raise SettingError(
                f"{path}: {name} had {what} {theirs}, {chosen.method} would have {ours}: "
                "give all the same, or write to another file"
            )
    found.setdefault(chosen.setting, {})[chosen.method] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    Disk(private=False).replace(path, _text(found).encode())
    return chosen


def _text(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return what was found as TOML."""
    text = "# Chosen on validation data alone by `heterophony tune`; `heterophony run --tuned` reads it.\n"
    for setting, methods in found.items():
        for method, values in methods.items():
            text += f"\n[{toml.key(setting)}.{toml.key(method)}]\n"
            text += "".join(f"{key} = {toml.value(value)}\n" for key, value in values.items())
    return text


def _unlike(name: str, theirs: Mapping[str, Any], method: str, ours: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """Return the first thing in which two methods' chances differ, and what each of them had; None: there is none."""
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
    """Return whether a change concerns a method at all. One that is not here might have had it."""
    try:
        return key.split(".")[0] in PARTS or key in registry.lookup(method).options()
    except ValueError:
        return True


def read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Read what was found, by setting and method."""
    found = toml.parsed(toml.text(path, SettingError), path, SettingError)
    if not all(isinstance(methods, dict) and all(map(_tuned, methods.values())) for methods in found.values()):
        raise SettingError(f"{path} is not a file that `heterophony tune` wrote")
    return found


def _tuned(entry: Any) -> bool:
    return isinstance(entry, dict) and {"options", "budget", "seeds"} <= entry.keys()


def options(path: Path, setting: str, method: str) -> dict[str, Any]:
    """Return what was found for a method on a setting, as changes for `assemble`."""
    found = read(path).get(setting, {})
    if method not in found:
        known = ", ".join(found) or "no method"
        raise SettingError(f"{path} has nothing for {method} on {setting}; it has {known} there")
    return dict(found[method]["options"])
