"""How to run a run again: its command, and its resolved setting as TOML."""

from __future__ import annotations

import json
import shlex

from heterophony import toml
from heterophony.record.folder import Folder


def command(folder: Folder) -> str:
    """A line for a shell; a setting that is not shipped as it was used is a file, whose text `setting` gives."""
    recipe = folder.recipe
    if not recipe:
        return f"started from Python: Federation.resume({str(folder.path)!r})"
    words = ["heterophony", "run", recipe["method"], "--on", name(folder), "--seed", str(recipe["seed"])]
    words += ["--rounds", str(folder.summary["rounds"])]
    for key, value in recipe.get("changes", {}).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else toml.value(value)}"]
    device = recipe.get("compute", {}).get("device", "cpu")
    return shlex.join([*words, *(["--device", device] if device != "cpu" else [])])


def name(folder: Folder) -> str:
    """The setting's name if the package ships it like that, else the name of a file."""
    from heterophony.settings import Setting, shipped

    used = folder.recipe["setting"]
    title = str(used["name"])
    if title in shipped() and json.loads(json.dumps(Setting.load(title).plain())) == used:
        return title
    return f"{title}.toml"


def setting(folder: Folder) -> str:
    """The resolved setting, as a file."""
    values = {key: value for key, value in folder.recipe.get("setting", {}).items() if key != "name"}
    return toml.written(values) if values else ""
