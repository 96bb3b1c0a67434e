"""The file that remembers what tuning has tried: a JSON line for each run, so that none is done twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from heterophony.base.disk import Disk
from heterophony.base.seal import opened, sealed
from heterophony.settings import Setting, SettingError


class Outcome(NamedTuple):
    """What a run was worth: None where it came to nothing. And whether its models gave outputs that are no numbers."""

    value: float | None
    diverged: bool = False


class Tried:
    """The outcomes of all runs so far, by what the run is. Without a path they are only kept in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.outcomes = {} if path is None or not path.exists() else _read(path)

    def add(self, key: str, outcome: Outcome) -> None:
        """Remember the outcome of a run."""
        self.outcomes[key] = outcome
        if self.path is not None:
            _append(self.path, key, outcome)


def key_of(
    method: str,
    setting: Setting,
    options: Mapping[str, Any],
    changes: Mapping[str, Any] | None,
    seed: int,
    rounds: int,
    by: str,
) -> str:
    """Return what a run is, in one line: the setting as a whole, so that a changed file is another run."""
    whole = {"method": method, "setting": setting.plain(), "options": dict(options), "changes": dict(changes or {})}
    return json.dumps({**whole, "seed": seed, "rounds": rounds, "by": by}, sort_keys=True)


def _read(path: Path) -> dict[str, Outcome]:
    """Read the whole lines of the file; the last one may be half written."""
    text = path.read_text(encoding="utf-8")
    found = {}
    try:
        for line in _whole_lines(text).splitlines(keepends=True):
            row, _ = opened(line.encode())
            outcome = Outcome(row.pop("value"), row.pop("diverged", False))
            found[json.dumps(row, sort_keys=True)] = outcome
    except KeyError:
        raise SettingError(f"{path} is damaged: a line of it is no trial") from None
    except ValueError as error:
        raise SettingError(f"{path} is damaged: of a line, {error}") from None
    return found


def _append(path: Path, key: str, outcome: Outcome) -> None:
    """Write one more line; half a line at the end goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    row = {**json.loads(key), "value": outcome.value}
    if outcome.diverged:
        row["diverged"] = True
    Disk(private=False).replace(path, _whole_lines(text).encode() + sealed(row))


def _whole_lines(text: str) -> str:
    return text[: text.rfind("\n") + 1]
