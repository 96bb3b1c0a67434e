"""An organisation's privacy budget: one file for a data set, whatever federations use it, and a counter elsewhere.

What a release costs is written before anything leaves. A crash then counts too much, never too little. The order of
the two writes tells a crash from an old file that was put back:

1. the budget, with a counter one higher and the hash of what it was before;
2. the witness, with that counter and the hash of the new budget;
3. the release.

A witness that is one behind, and has the hash of what was before, was a crash between 1 and 2: nothing had left. Any
other difference is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from heterophony.base.disk import Disk
from heterophony.base.noise import NoiseSource, System
from heterophony.deploy.named_function import DeployError
from heterophony.kernel.accountant import added, by_label, composed, epsilon_of, within
from heterophony.kernel.node import Node
from heterophony.kernel.privacy import Charge, Privacy

FORMAT = 1


@dataclass(frozen=True)
class Spent:
    """What stands in the file: all that was ever charged, how often, and what the file was before."""

    epsilon: float
    delta: float
    counter: int = 0
    before: str = ""
    charges: tuple[Charge, ...] = field(default=())

    def encode(self) -> bytes:
        body = {**vars(self), "charges": [list(charge) for charge in self.charges], "format": FORMAT}
        text = json.dumps(body, sort_keys=True)
        return (json.dumps({"sum": _hash(text.encode()), "budget": text}) + "\n").encode()

    @property
    def hash(self) -> str:
        return _hash(self.encode())


class Budget:
    """The budget of one data set. Several processes, and several federations, may spend from it.

    Arguments:
        file: where it is kept, outside any federation's folder.
        witness: a second place, on another disk if possible. None: an old file that is put back is not noticed.
        epsilon, delta: how much may be told in all. They are written when the file is made, and are then its own.
    """

    def __init__(
        self, file: Path, witness: Path | None, epsilon: float, delta: float, disk: Disk | None = None
    ) -> None:
        self.file, self.witness, self.disk = file, witness, disk or Disk()
        self.epsilon, self.delta = epsilon, delta

    def spend(self, charge: Charge) -> bool:
        """Charge, durably, and return True; return False, and charge nothing, where it would overdraw."""
        with self._locked():
            now = self._read()
            charges = tuple(added(now.charges, charge))
            if not within(composed(charges), now.epsilon, now.delta):
                return False
            self._commit(Spent(now.epsilon, now.delta, now.counter + 1, now.hash, charges))
            return True

    def look(self) -> Spent:
        """Return what was spent. Nothing is written but what a crash has left undone."""
        with self._locked():
            return self._read()

    def affords(self, charge: Charge) -> bool:
        """Return whether a release could still be paid."""
        now = self.look()
        return within(composed(added(now.charges, charge)), now.epsilon, now.delta)

    def lines(self) -> Iterator[str]:
        """Say how much was spent, and on what."""
        now = self.look()
        spent = epsilon_of(composed(now.charges), now.delta)
        yield f"privacy budget {self.file}: epsilon {spent:.4g} of {now.epsilon:g} spent, at delta {now.delta:g}"
        for label, epsilon in by_label(now.charges, now.delta).items():
            times = sum(charge.times for charge in now.charges if charge.label == label)
            yield f"  {label}: {times} times, epsilon {epsilon:.4g} by itself"
        if self.witness is None:
            yield "  no witness is named: if an old budget file is put back, nobody notices"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(str(self.file) + ".lock"):
            yield

    # -- the two files -----------------------------------------------------------------------------------------
    def _commit(self, new: Spent) -> None:
        """Write the budget, then the witness. Whoever turns them round takes a crash for an old file put back."""
        self.disk.replace(self.file, new.encode())
        self._testify(new)

    def _testify(self, now: Spent) -> None:
        if self.witness is not None:
            self.witness.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.disk.replace(self.witness, (json.dumps({"counter": now.counter, "budget": now.hash}) + "\n").encode())

    def _read(self) -> Spent:
        now, seen = self._budget(), self._witnessed()
        if now is None:
            if seen is not None:
                raise DeployError(f"{self.file} is missing, but {self.witness} has counted {seen[0]}: put it back")
            now = Spent(self.epsilon, self.delta)
            self._commit(now)
            return now
        if (now.epsilon, now.delta) != (self.epsilon, self.delta):
            raise DeployError(
                f"{self.file} is a budget of epsilon {now.epsilon:g} at delta {now.delta:g}, not {self.epsilon:g} at "
                f"{self.delta:g}: all that use these data say the same"
            )
        if self.witness is not None and seen != (now.counter, now.hash):
            self._recover(now, seen)
        return now

    def _recover(self, now: Spent, seen: tuple[int, str] | None) -> None:
        """Finish a write that a crash has cut off; raise where one of the two files is an old one."""
        if seen is None and now.counter == 0:
            self._testify(now)
        elif seen is None:
            raise DeployError(f"{self.witness} is missing, but {self.file} has counted {now.counter}: put it back")
        elif seen == (now.counter - 1, now.before):
            self._testify(now)
        else:
            older = self.file if seen[0] >= now.counter else self.witness
            raise DeployError(
                f"{older} is an old one, or of another history ({self.file} counts {now.counter}, {self.witness} "
                f"{seen[0]}): nothing leaves until the newest of both are put back"
            )

    def _budget(self) -> Spent | None:
        if not self.file.exists():
            return None
        try:
            outer = json.loads(self.file.read_bytes())
            if _hash(outer["budget"].encode()) != outer["sum"]:
                raise ValueError("its checksum differs")
            value = json.loads(outer["budget"])
            if value.pop("format") != FORMAT:
                raise ValueError("it is of another format")
            return Spent(**{**value, "charges": tuple(Charge(*one) for one in value["charges"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DeployError(f"{self.file} is damaged ({error}): put a backup of it and its witness back") from None

    def _witnessed(self) -> tuple[int, str] | None:
        if self.witness is None or not self.witness.exists():
            return None
        try:
            value: Mapping[str, Any] = json.loads(self.witness.read_bytes())
            return int(value["counter"]), str(value["budget"])
        except (ValueError, KeyError, TypeError) as error:
            raise DeployError(f"{self.witness} is damaged ({type(error).__name__}): put a backup of it back") from None


class AtHome:
    """The account of a node at home: the organisation's budget, and the operating system's entropy."""

    def __init__(self, budget: Budget | None) -> None:
        self.budget = budget

    def spend(self, node: Node, charge: Charge, privacy: Privacy | None) -> bool:
        """Charge the organisation's budget; training without one is private all the same, and not counted."""
        return self.budget is None or self.budget.spend(charge)

    def source(self, node: Node, purpose: str) -> NoiseSource:
        return System()

    def spent(self, node: Node, privacy: Privacy) -> float | None:
        """Return nothing: what was spent stands in the budget's file, and is nobody else's."""
        return None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
