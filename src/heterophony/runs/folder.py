"""What can be read from a run folder, finished or not, without its data or its models."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heterophony.runs.run import Run, RunError
from heterophony.runs.summary import Summary, evaluations
from heterophony.tables.ledger import Ledger
from heterophony.tables.table import Table


@dataclass(frozen=True)
class Folder:
    """A run folder as it lies on the disk; each file is read when it is first asked for."""

    path: Path

    @cached_property
    def spec(self) -> dict[str, Any]:
        return Run.spec(self.path)

    @cached_property
    def summary(self) -> Summary:
        """What the run has come to."""
        return Summary.load(self.path)

    @cached_property
    def table(self) -> Table:
        return evaluations(self.path, self.spec)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(Run(self.path).rows("ledger"))

    @property
    def recipe(self) -> dict[str, Any]:
        """How it was built, where it was built from names."""
        return self.spec.get("recipe") or {}

    @property
    def homes(self) -> dict[str, str]:
        return dict(self.spec["homes"])

    @property
    def headline(self) -> str:
        return str(self.spec["headline"])

    def extra(self, name: str) -> dict[str, Any] | None:
        """Return a file beside the tables, such as `correlation.json`; None where there is none."""
        return Run.part(self.path, name)


def inside(path: Path) -> bool:
    """Return whether a file lies, or is to lie, in a run folder: all there is for its owner alone."""
    return any(os.path.exists(place / "spec.json") for place in path.absolute().parents)


def find(places: list[Path]) -> list[Path]:
    """Return the run folders at and below these places, in order."""
    found: dict[Path, Path] = {}  # by where it really is: a folder may be named in two ways
    for place in places:
        if not place.exists():
            raise RunError(f"{place}: there is no such folder")
        here = [place] if (place / "spec.json").exists() else sorted(p.parent for p in place.glob("**/spec.json"))
        if not here:
            raise RunError(f"{place} holds no run: there is no spec.json in it or below it")
        for path in here:
            found.setdefault(path.resolve(), path)
    return list(found.values())
