"""Many runs, each in a folder of its own: what is finished is reused, what is not goes on where it stopped."""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from heterophony.base.amounts import counted
from heterophony.base.seal import sealed
from heterophony.compute.workers import die_with_parent
from heterophony.engines.engine import Engine
from heterophony.federation import Federation, options_of
from heterophony.kernel.compute import Compute
from heterophony.runs.execution import cores, execute_in
from heterophony.runs.run import Run, RunError, first_difference
from heterophony.runs.summary import Summary, written
from heterophony.settings import Setting, assemble
from heterophony.settings.assemble import resolve

log = logging.getLogger(__name__)
FILE = "order.json"


@dataclass(frozen=True)
class PlannedRun:
    """One run: a method on a setting, with these changes and this seed, and the folder it goes to."""

    label: str
    method: str
    setting: Setting
    folder: Path
    seed: int = 0
    rounds: int | None = None  # None: as the setting says
    changes: Mapping[str, Any] = field(default_factory=dict)
    compute: Compute = Compute()
    data: Path | None = None

    @property
    def goal(self) -> int:
        """Return how many rounds it is to have."""
        return self.rounds or self.setting.plan(self.method)[0]

    def terms(self) -> dict[str, Any]:
        """Return what a folder must have been run with to be taken for this, as far as the user said it."""
        terms = {"method": self.method, "setting": self.setting.plain(), "seed": self.seed, "changes": self.changes}
        return dict(json.loads(json.dumps(terms)))

    def resolved(self) -> dict[str, Any]:
        """Return what it must have been run with besides, also where nobody said it: a default may have changed since.

        Not the device: what is the same in exact arithmetic differs in last digits there, by less than between seeds.
        A coarser precision is another arithmetic.
        """
        made, _ = resolve(self.method, self.setting, self.changes, self.data)
        return dict(json.loads(json.dumps({"settings": options_of(made), "precision": self.compute.precision})))

    def build(self) -> Federation:
        """Build its federation."""
        return assemble(
            self.method,
            self.setting,
            seed=self.seed,
            changes=self.changes,
            root=self.data,
            compute=self.compute,
        )

    def finished(self) -> Summary | None:
        """Return what the folder holds, if that is this run and it is at its end."""
        if not (self.folder / "spec.json").exists():
            return None
        mine = self._agreed()
        Run(self.folder).check()
        known = written(self.folder)
        if known is not None and known.rounds > self.goal:
            raise RunError(f"{self.folder} has had {known.rounds} rounds, not {self.goal}: choose another folder")
        if (goal := Run(self.folder).goal) > self.goal:  # its tables may be beyond what was once finished
            raise RunError(f"{self.folder} is a run of {goal} rounds, not {self.goal}: choose another folder")
        return known if mine and known is not None and known.rounds == self.goal else None

    def _agreed(self) -> bool:
        """Return whether the folder is of this run. Raise where it is of another one."""
        try:
            terms = Run.part(self.folder, FILE)
        except RunError as error:
            raise RunError(f"{error}; remove it to go on with this run") from None
        if terms is None:  # a run that was started by itself: compared as a whole when it is opened
            return False
        spec, asked = Run.spec(self.folder), self.terms()
        changes = {"changes": asked.pop("changes")}
        resolved = _shared(self.resolved(), spec)
        for was, wanted in ((terms, asked), (spec, resolved), (terms, changes)):
            for key, value in wanted.items():
                if was.get(key) != value:
                    self._refuse(spec, *first_difference(key, was.get(key), value))
        return True

    def _refuse(self, spec: Mapping[str, Any], where: str, was: Any, asked: Any) -> NoReturn:
        """Raise and say what the folder was run with, and what is asked for."""
        name = where.removeprefix("changes.").removeprefix("settings.")
        if where.startswith("changes."):  # what nobody changed was as the setting has it
            was = _field(Setting.of(dict(spec["recipe"]["setting"])), name) if was is None else was
            asked = _field(self.setting, name) if asked is None else asked
        hint = f"give --precision {was}, or " if name == "precision" else ""
        raise RunError(
            f"{self.folder} was run with {name} = {was!r:.80}, not {asked!r:.80}: {hint}choose another --out"
        )


def _shared(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return our options without those that came later than a run: their defaults are how it was before."""
    return {
        key: _shared(value, theirs[key]) if isinstance(value, dict) and isinstance(theirs[key], dict) else value
        for key, value in ours.items()
        if key in theirs
    }


def _field(setting: Setting, name: str) -> Any:
    """Return a field of a setting by its name as in `--set`; None: it has no such field."""
    place: Any = setting.model_dump(by_alias=True)
    for part in name.split("."):
        place = place.get(part) if isinstance(place, Mapping) else None
    return place


def complete(
    planned: PlannedRun, *, workers: int = 1, loud: bool = True, watch: Callable[[Engine], None] | None = None
) -> Summary:
    """Run what is planned, or as much of it as is left, and return its summary. `watch` may stop the engine."""
    known = planned.finished()
    if known is not None:
        return known
    federation = planned.build()
    if federation.compute.device == "cpu":
        federation = federation.computed(workers=workers)
    terms = {FILE: sealed(planned.terms(), indent=1)}
    return execute_in(planned.folder, federation, planned.goal, beside=terms, loud=loud, watch=watch).summary


def run(runs: Sequence[PlannedRun], jobs: int = 1, *, check: bool = True) -> Iterator[tuple[PlannedRun, Summary]]:
    """Yield each run with its summary, as they come. With one job a run may use all cores; with several, one each.

    With `check`, what cannot be built is an error before anything runs, for the price of loading the data once more for
    each label. Stopped, it goes on when the same is asked for again.
    """
    began = time.monotonic()
    known = [planned.finished() for planned in runs]
    open_ = [planned for planned, found in zip(runs, known, strict=True) if found is None]
    for planned in {planned.label: planned for planned in reversed(open_)}.values() if check else ():
        planned.build()
    for planned, found in zip(runs, known, strict=True):
        if found is not None:
            yield planned, found
    said = len(runs) - len(open_)
    if said:
        log.info(f"{said} of {counted(len(runs), 'run')} {'is' if said == 1 else 'are'} there already")
    for planned, found in _in_turn(open_) if jobs == 1 else _together(open_, jobs):
        said += 1
        acc = found.score.text(found.metrics.acc)
        clock = f"{time.monotonic() - began:.0f} s so far"
        log.info(f"{said} of {len(runs)}: {planned.label}, seed {planned.seed}: {found.score.label} {acc}; {clock}")
        yield planned, found


def _in_turn(runs: Sequence[PlannedRun]) -> Iterator[tuple[PlannedRun, Summary]]:
    for planned in runs:
        yield planned, complete(planned, workers=cores())


def _together(runs: Sequence[PlannedRun], jobs: int) -> Iterator[tuple[PlannedRun, Summary]]:
    spawn = multiprocessing.get_context("spawn")  # a fork would share torch's threads and CUDA's context
    pool = ProcessPoolExecutor(max(1, min(jobs, len(runs))), mp_context=spawn, initializer=die_with_parent)
    try:
        doing: dict[Future[Summary], PlannedRun] = {pool.submit(complete, run, loud=False): run for run in runs}
        for done in as_completed(doing):
            yield doing[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)
