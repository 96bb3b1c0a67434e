"""What a finding is: something that only some runs have to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from heterophony.tables.ledger import Ledger
from heterophony.tables.table import Table

if TYPE_CHECKING:
    from heterophony.runs.summary import Summary


@dataclass(frozen=True)
class Evidence:
    """What a run leaves behind: what it is (`spec.json`), its evaluation table and its ledger."""

    spec: Mapping[str, Any]
    table: Table
    ledger: Ledger

    @property
    def recipe(self) -> Mapping[str, Any]:
        """How the run was built; empty where it was built in Python."""
        return self.spec.get("recipe") or {}

    @property
    def homes(self) -> Mapping[str, str]:
        """The domain of each participant."""
        homes: Mapping[str, str] = self.spec["homes"]
        return homes

    @property
    def product(self) -> str:
        """The product that is the method's headline."""
        return str(self.spec["headline"])

    @property
    def parents(self) -> Mapping[str, str] | None:
        """The parent of each node of a tree; None where the run is no tree."""
        return self.recipe.get("parents")

    @cached_property
    def incidents(self) -> list[dict[str, Any]]:
        """What went wrong. A node that joins is in the ledger too, but is no trouble."""
        return [row for row in self.ledger.incidents if row["incident"] != "joined"]


@dataclass(frozen=True)
class Finding:
    """One thing that only some runs have to say. Each kind is a class in a file of its own.

    `key` is its name in `show --json`, and `value` what stands there.
    """

    key: ClassVar[str]
    value: Any

    @classmethod
    def of(cls, evidence: Evidence) -> Finding | None:
        """Return the finding, or None where it does not apply to this run."""
        raise NotImplementedError

    def lines(self, summary: Summary) -> list[str]:
        """Return what a person reads in the terminal."""
        raise NotImplementedError
