"""How fast a run is: measured seconds a round, kept in its folder, and what they let us expect of other runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from heterophony.base.disk import Disk
from heterophony.base.machine import machine
from heterophony.base.seal import sealed
from heterophony.engines.engine import Engine
from heterophony.runs.progress import round_of
from heterophony.runs.run import Run, RunError
from heterophony.runs.summary import written
from heterophony.studies.experiments.planning import GroupAndArm

FILE = "pace.json"


@dataclass(frozen=True)
class MeasuredPace:
    """What was measured of a run: `seconds` are those of one round, `start` those before the first one ended."""

    seconds: float
    start: float
    done: int  # rounds of the run so far
    machine: str

    def save(self, folder: Path) -> None:
        """Keep it beside the run."""
        Disk().replace(folder / FILE, sealed(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> MeasuredPace | None:
        """Return what was measured of the run in a folder; None: nothing, or only before its first round had ended."""
        if not (folder / "spec.json").exists():
            return None
        found = Run.part(folder, FILE)
        if found is not None:
            try:
                return cls(**found)
            except TypeError:
                raise RunError(f"{folder / FILE} is damaged: it lacks a part") from None
        ended = written(folder)
        if ended is None or ended.seconds is None:
            return None
        return cls(ended.seconds / ended.rounds, 0.0, ended.rounds, ended.machine or "")


class Stopwatch:
    """Watches an engine: it takes the time of each round, and stops the engine when the time is up."""

    def __init__(self, until: float, most: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.until, self.most, self.clock = until, most, clock
        self.begun = clock()
        self.first: tuple[int, float] | None = None  # the first round that ended here, and when
        self.last: tuple[int, float] | None = None
        self.at = self.since = -1

    def __call__(self, engine: Engine) -> None:
        done, now = round_of(engine), self.clock()
        if self.at < 0:
            self.at = self.since = done
        if done > self.at:
            self.at, self.last = done, (done, now)
            self.first = self.first or self.last
        if now >= self.until or (self.most is not None and self.at - self.since >= self.most):
            engine.stop = True

    def pace(self, device: str) -> MeasuredPace | None:
        """Return what was measured; None where no round has ended."""
        if self.first is None or self.last is None:
            return None
        start = self.first[1] - self.begun
        rounds, span = self.last[0] - self.first[0], self.last[1] - self.first[1]
        return MeasuredPace(span / rounds if rounds else start, start, self.last[0], machine(device))


@dataclass(frozen=True)
class Expected:
    """How many seconds a run will take, and what that is estimated from; None: nothing like it was measured."""

    seconds: float | None
    basis: str


OWN, GROUP, TABLE, NONE = "measured", "the same arm in another group", "the mean of the table's arms", "not measured"


def expected(place: GroupAndArm, left: int, known: Mapping[GroupAndArm, Sequence[MeasuredPace]]) -> Expected:
    """Estimate a run by its own arm, or else by the same arm in other groups, or else by all arms of its table."""
    same = [pace for (_, arm), paces in known.items() for pace in paces if arm == place[1]]
    every = [pace for paces in known.values() for pace in paces]
    for basis, paces in ((OWN, known.get(place, ())), (GROUP, same), (TABLE, every)):
        if paces:
            mean = statistics.fmean(pace.seconds for pace in paces)
            return Expected(statistics.fmean(pace.start for pace in paces) + left * mean, basis)
    return Expected(None, NONE)
