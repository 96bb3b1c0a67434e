"""Which way of computing was the fastest for a program on this machine: timed once, then remembered.

A choice by timing must not change a run's bits. So it is written into the run's folder, which a resumed run reads, and
into a file of the machine, which the next run reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from heterophony.base.disk import Disk

log = logging.getLogger(__name__)
FILE = "choices.json"


@dataclass(frozen=True)
class Way:
    """One way of computing the fits of one program that are pending together."""

    name: str
    stacked: bool = False
    channels_last: bool = False
    compiled: bool = False
    products: bool = False  # convolutions and pooling written out


BRANCHES = Way("branches")
CHANNELS_LAST = Way("branches, channels-last", channels_last=True)
COMPILED_BRANCHES = Way("branches, compiled", compiled=True)
COMPILED_CHANNELS_LAST = Way("branches, channels-last, compiled", channels_last=True, compiled=True)
STACKED = Way("stacked", stacked=True)
COMPILED = Way("stacked, compiled", stacked=True, compiled=True)
PRODUCTS = Way("stacked, as products, compiled", stacked=True, compiled=True, products=True)
EVERY = BRANCHES, CHANNELS_LAST, COMPILED_BRANCHES, COMPILED_CHANNELS_LAST, STACKED, COMPILED, PRODUCTS
WAYS = {way.name: way for way in EVERY}


class Choices:
    """What was chosen for each program: in the run's file, else in the machine's."""

    def __init__(self, run: Path | None = None, machine: Path | None = None) -> None:
        self.run, self.machine = run, machine
        self.made: dict[str, dict[str, Any]] = _read(run, strict=True)
        self.known = _read(machine)

    def way(self, key: str) -> Way | None:
        """Return what was chosen; None if nothing was. A choice of the machine's becomes the run's."""
        found = self.made.get(key)
        if found is None:
            found = self.known.get(_here(key))
            if found is None:
                return None
            self._write(key, found)
        return WAYS.get(found["way"])

    def keep(self, key: str, way: Way, times: Mapping[str, float], what: str) -> None:
        """Remember a choice and log it.

        Arguments:
            key: of the program.
            way: the fastest.
            times: seconds a step, by the name of each way that was tried.
            what: was computed, for a reader.
        """
        said = ", ".join(f"{name} {1e3 * seconds:.2f}" for name, seconds in times.items())
        log.info("%s: %s (ms a step: %s)", what, way.name, said)
        milliseconds = {name: round(1e3 * seconds, 3) for name, seconds in times.items()}
        entry = {"way": way.name, "of": what, "milliseconds": milliseconds}
        self._write(key, entry)
        if self.machine is not None:
            self.known = _read(self.machine) | {_here(key): entry}  # others may have written meanwhile
            try:
                self.machine.parent.mkdir(parents=True, exist_ok=True)
                Disk(private=False).replace(self.machine, _text(self.known))
            except OSError as error:  # a home that cannot be written costs a second timing, nothing else
                log.info("the choice is not remembered for other runs: %s", error)

    def _write(self, key: str, entry: dict[str, Any]) -> None:
        self.made[key] = entry
        if self.run is not None:
            Disk().replace(self.run, _text(self.made))


def machine_file() -> Path:
    """Return where a machine's choices are kept: under HETEROPHONY_CACHE, or in the user's cache folder."""
    given = os.environ.get("HETEROPHONY_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) / "heterophony" / FILE


def key_of(*parts: Hashable) -> str:
    """Return a short name of a program that means the same in another process."""
    return hashlib.sha256(_said(parts).encode()).hexdigest()[:20]


def _said(value: Any) -> str:
    """Return a part of a program as text. Code is named by what it does, not by its address."""
    match value:
        case tuple() | list():
            return f"({','.join(map(_said, value))})"
        case frozenset():
            return f"{{{','.join(sorted(map(_said, value)))}}}"
        case CodeType():
            names = *value.co_names, *value.co_freevars
            code = hashlib.sha256(value.co_code).hexdigest()[:12]
            return f"{value.co_qualname}:{code}:{_said(names)}:{_said(value.co_consts)}"
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
    return repr(value)


def _here(key: str) -> str:
    """Return a key that holds for this device and this version of torch only."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return f"{name}, torch {torch.__version__}: {key}"


def _read(path: Path | None, strict: bool = False) -> dict[str, dict[str, Any]]:
    """Read what was chosen. A run cannot do without its own file (`strict`); a machine's is only a memory."""
    if path is None or not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        return {key: entry for key, entry in found.items() if entry["way"] in WAYS}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if strict:
            raise ValueError(
                f"{path} is damaged ({type(error).__name__}): without this record of choices the run cannot go on "
                "to the bit"
            ) from None
        return {}


def _text(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
