"""How to run a run again: its command, and its resolved setting as TOML."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from heterophony.base import toml
from heterophony.catalogue.registry import parse
from heterophony.report.chapters import goal
from heterophony.runs.folder import Folder


def command(folder: Folder) -> str:
    """Return a line for a shell. A setting that is not shipped as it was used is a file, whose text `setting` gives."""
    recipe = folder.recipe
    if not recipe:
        return f"started from Python: Federation.resume({str(folder.path)!r})"
    words = ["heterophony", "run", recipe["method"], "--on", name(folder), "--seed", str(recipe["seed"])]
    words += ["--rounds", str(goal(folder))]
    for key, value in recipe.get("changes", {}).items():
        words += ["--set", f"{key}={_said(value)}"]
    words += _compute(recipe.get("compute", {}))
    if (track := folder.spec.get("track", "auto")) != "auto":
        words += ["--track", str(track)]
    return shlex.join(words)


def _compute(given: Mapping[str, Any]) -> list[str]:
    """Return the options of computing: the device, which `auto` would choose by the machine, and what is no default."""
    words = ["--device", str(given.get("device", "cpu"))]
    for key, usual in (("executor", "auto"), ("precision", "fp32")):
        if given.get(key, usual) != usual:
            words += [f"--{key}", str(given[key])]
    return words if given.get("deterministic", True) else [*words, "--no-deterministic"]


def _said(value: Any) -> str:
    """Return a value of --set: text as it is, unless it would be read as something else."""
    if isinstance(value, str) and parse(f"key={value}")[1] == value:
        return value
    return toml.value(value)


def name(folder: Folder) -> str:
    """Return the setting's name if the package ships it like that, the function that it is, or the name of a file."""
    from heterophony.settings import Setting, shipped

    used = folder.recipe["setting"]
    title, world = str(used["name"]), used["data"].get("world")
    if world is not None and used == Setting.load(world).plain():
        return str(world)
    if title in shipped() and json.loads(json.dumps(Setting.load(title).plain())) == used:
        return title
    return f"{title}.toml"


def setting(folder: Folder) -> str:
    """Return the resolved setting, as a file."""
    values = {key: value for key, value in folder.recipe.get("setting", {}).items() if key != "name"}
    return toml.written(values) if values else ""
