"""What remains of the experiments, in one order, as far as it fits into some minutes on a machine.

A run that the end of the minutes finds at work is saved and stopped. It goes on from there the next time.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from heterophony.base.amounts import counted
from heterophony.compute.workers import die_with_parent
from heterophony.data.sources import catalogue
from heterophony.data.sources.known_sets import KNOWN_SETS
from heterophony.kernel.compute import Compute
from heterophony.runs import execution
from heterophony.settings.assemble import PARTS
from heterophony.studies import campaign
from heterophony.studies.campaign import PlannedRun
from heterophony.studies.experiments.experiment import Experiment, shipped
from heterophony.studies.experiments.pace import NONE, Expected, MeasuredPace, Stopwatch, expected
from heterophony.studies.experiments.planning import GroupAndArm, Version, planned_runs

log = logging.getLogger(__name__)
FIRST = ("fccl-digits", "fedmd-global-table3", "flamby-heart", "niid-bench", "fml-table1", "pfllib-cifar100")
TRIAL = 20.0  # seconds of rounds, alone and side by side, after which the faster way is taken
GAIN = 1.1  # side by side must be so many times faster
FEW = 3  # rounds of a run that is only measured
NO_ROOM = ("out of memory", "busy or unavailable")  # what a GPU says that has no memory left for one more


@dataclass(frozen=True)
class Item:
    """A run that is not finished, and how far it is."""

    place: GroupAndArm
    planned: PlannedRun
    done: int

    @property
    def left(self) -> int:
        """Return how many rounds are left."""
        return max(1, self.planned.goal - self.done)


@dataclass(frozen=True)
class RemainingRuns:
    """What remains of one experiment."""

    experiment: Experiment
    folder: Path
    version: Version
    items: tuple[Item, ...]
    runs: int  # of the whole experiment
    known: Mapping[GroupAndArm, Sequence[MeasuredPace]]
    missing: tuple[str, ...] = ()  # data sets that are not here

    @property
    def expectations(self) -> list[Expected]:
        """Return what is expected of each run that is left."""
        return [expected(item.place, item.left, self.known) for item in self.items]

    @property
    def minutes(self) -> float:
        """Return how long those runs will take one after the other of which something is known."""
        return sum(each.seconds or 0.0 for each in self.expectations) / 60

    @property
    def basis(self) -> str:
        """Say how the minutes were estimated."""
        said = [each.basis for each in self.expectations]
        kinds = [f"{basis} ({said.count(basis)})" for basis in dict.fromkeys(said)]
        return (kinds[0].rpartition(" ")[0] if len(kinds) == 1 else ", ".join(kinds)) if said else "-"

    @property
    def unknown(self) -> int:
        """Return of how many runs nothing is known."""
        return sum(each.basis == NONE for each in self.expectations)


@dataclass(frozen=True)
class Stretch:
    """What a worker did of a run: to its end or not, and why it could not, where it could not."""

    ended: bool
    pace: MeasuredPace | None = None
    why: str = ""

    @property
    def crowded_out(self) -> bool:
        """Return whether it stopped because the device had no memory left: with fewer beside it, it may go on."""
        return any(words in self.why for words in NO_ROOM)


def ordered(names: Iterable[str]) -> list[str]:
    """Return experiments in the order in which they are run: those that settle most first."""
    first = {name: place for place, name in enumerate(FIRST)}
    return sorted(names, key=lambda name: (first.get(name, len(first)), name))


def remaining(
    root: Path, version: Version, compute: Compute, data: Path | None, names: Sequence[str] = ()
) -> list[RemainingRuns]:
    """Return what remains of these experiments, or of all that are shipped, in the order in which it is run."""
    here = {each.entry.name for each in catalogue.known(data) if each.found}
    found = []
    for name in names or ordered(shipped()):
        experiment = Experiment.load(name)
        folder = root / (experiment.name + ("-quick" if version.quick else ""))
        found.append(_table(experiment, folder, version, compute, data, here))
    return found


def _table(
    experiment: Experiment, folder: Path, version: Version, compute: Compute, data: Path | None, here: set[str]
) -> RemainingRuns:
    """Return what remains of one experiment: one seed after the other, so that all arms have figures early."""
    planned = planned_runs(experiment, version, folder, compute, data)
    items: list[Item] = []
    known: dict[GroupAndArm, list[MeasuredPace]] = {}
    for place, runs in planned.items():
        paces = {run.folder: pace for run in runs if (pace := MeasuredPace.load(run.folder)) is not None}
        if paces:
            known[place] = list(paces.values())
        open_ = [run for run in runs if run.finished() is None]
        items += [Item(place, run, paces[run.folder].done if run.folder in paces else 0) for run in open_]
    items.sort(key=lambda item: item.planned.seed)
    lacking = sorted({source for item in items for source in _sources(item.planned)} - here - _own(items))
    return RemainingRuns(
        experiment, folder, version, tuple(items), sum(map(len, planned.values())), known, tuple(lacking)
    )


def _sources(planned: PlannedRun) -> list[str]:
    """Return the data sets that a run needs."""
    changes = {key: value for key, value in planned.changes.items() if key.split(".")[0] in PARTS}
    return planned.setting.changed(changes).sources


def _own(items: Sequence[Item]) -> set[str]:
    """Return the sources that are no known sets: they are looked for when the run is built."""
    return {source for item in items for source in _sources(item.planned) if source not in KNOWN_SETS}


def ready(table: RemainingRuns) -> list[Item]:
    """Return those runs of a table whose data are here."""
    return [item for item in table.items if not set(_sources(item.planned)) & set(table.missing)]


def unmeasured(tables: Sequence[RemainingRuns]) -> Iterator[Item]:
    """Return the first run of every arm of which nothing was measured: first arms first, so that each table has one."""
    waiting = []
    for table in tables:
        firsts: dict[GroupAndArm, Item] = {}
        for item in ready(table):
            if item.place not in table.known:
                firsts.setdefault(item.place, item)
        waiting.append(list(firsts.values()))
    for place in range(max(map(len, waiting), default=0)):
        yield from (items[place] for items in waiting if place < len(items))


def advance(planned: PlannedRun, until: float, most: int | None = None) -> Stretch:
    """Go on with a run until it ends, a moment has come, or it has had so many rounds more."""
    watch = Stopwatch(until, most)
    try:
        ended = campaign.complete(planned, loud=False, watch=watch) is not None
    except KeyboardInterrupt:  # stopped by the watch, or by the user: it is saved
        ended = False
    except (ValueError, OSError, RuntimeError) as error:  # the others can go on
        return Stretch(False, None, f"{planned.folder}: {str(error).splitlines()[0] if str(error) else error!r}")
    pace = watch.pace(planned.compute.device)
    if pace is not None and (planned.folder / "spec.json").exists():
        pace.save(planned.folder)
    return Stretch(ended, pace)


class RunPool:
    """Processes that advance runs, so many at a time, until a moment."""

    def __init__(self, jobs: int, until: float, device: str = "cpu") -> None:
        self.jobs, self.until = jobs, until
        spawn = multiprocessing.get_context("spawn")  # a fork would share torch's threads and CUDA's context
        # A process keeps the GPU's memory that its run took, and a failure of the GPU too: there each run has its own.
        each = None if device == "cpu" else 1
        self.processes = ProcessPoolExecutor(
            jobs, mp_context=spawn, initializer=die_with_parent, max_tasks_per_child=each
        )

    def __enter__(self) -> RunPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.processes.shutdown(cancel_futures=True)

    def run(
        self, items: Sequence[Item], jobs: int | None = None, *, most: int | None = None, span: float | None = None
    ) -> Iterator[tuple[Item, Stretch]]:
        """Yield what became of each run as it comes. None is begun when the moment has come.

        A run that others have left no memory for waits until there are fewer of them. It goes on from its snapshot.
        """
        waiting, doing = list(items), dict[Future[Stretch], tuple[Item, int]]()
        until = self.until if span is None else min(self.until, time.time() + span)
        room = jobs or self.jobs
        while waiting or doing:
            while waiting and len(doing) < room and time.time() < until:
                item = waiting.pop(0)
                doing[self.processes.submit(advance, item.planned, until, most)] = item, room
            if not doing:
                return
            for done in wait(doing, return_when=FIRST_COMPLETED).done:
                item, others = doing.pop(done)
                stretch = done.result()
                if stretch.crowded_out and others > 1:
                    room = max(1, len(doing))
                    waiting.insert(0, item)
                else:
                    yield item, stretch


def work(tables: Sequence[RemainingRuns], minutes: float, jobs: int | None, tell: Callable[[str], None]) -> list[str]:
    """Advance what remains until the minutes are over. Return why some could not be run, one line each.

    `jobs` None: on a CPU one run a core; on a GPU each table as many as are faster than one, which is tried.
    """
    until = time.time() + 60 * minutes
    cores = execution.cores()
    failed: list[str] = []
    waiting = [(table, items) for table in tables if (items := ready(table))]
    if not waiting:
        return failed
    device = waiting[0][1][0].planned.compute.device
    with RunPool(jobs or cores, until, device) as workers:
        for table, items in waiting:
            if time.time() >= until:
                break
            at_once = jobs or (cores if device == "cpu" else _tried(workers, items, tell))
            failed += _report(table, workers.run(items, at_once), tell)
    return failed


def measure(tables: Sequence[RemainingRuns], minutes: float, tell: Callable[[str], None]) -> list[str]:
    """Run a few rounds of every arm that was never measured, one run at a time; they are the beginnings of its runs."""
    failed = []
    items = list(unmeasured(tables))
    device = items[0].planned.compute.device if items else "cpu"
    with RunPool(1, time.time() + 60 * minutes, device) as workers:
        for item, done in workers.run(items, most=FEW):
            failed += [done.why] if done.why else []
            tell(f"{_named(item)}: {done.why or _said(done)}")
    return failed


def _tried(pool: RunPool, items: Sequence[Item], tell: Callable[[str], None]) -> int:
    """Return how many runs at a time are faster: one arm's seeds alone, and then side by side, each for some seconds.

    What is run meanwhile is kept: it is the beginning of these runs.
    """
    same = [item for item in items if item.place == items[0].place][: pool.jobs]
    if len(same) < 2:
        return 1
    alone = [done.pace for _, done in pool.run(same[:1], 1, span=TRIAL)]
    together = [done.pace for _, done in pool.run(same, len(same), span=TRIAL)]
    one, many = _rate(alone), _rate(together)
    tell(f"{same[0].planned.label}: {one:.2f} rounds a second alone, {many:.2f} with {len(same)} side by side")
    return len(same) if many > GAIN * one else 1


def _rate(paces: Iterable[MeasuredPace | None]) -> float:
    """Return the rounds a second of runs at the same time."""
    return sum(1 / pace.seconds for pace in paces if pace is not None and pace.seconds > 0)


def _report(table: RemainingRuns, stretches: Iterable[tuple[Item, Stretch]], tell: Callable[[str], None]) -> list[str]:
    """Tell of each run what became of it, and return why some could not be run."""
    failed = []
    for item, done in stretches:
        failed += [done.why] if done.why else []
        tell(f"{table.experiment.name}, {_named(item)}: {done.why or _said(done)}")
    return failed


def _named(item: Item) -> str:
    return f"{item.planned.label}, seed {item.planned.seed}"


def _said(done: Stretch) -> str:
    if done.ended:
        return "finished"
    far = "before its first round" if done.pace is None else f"after {counted(done.pace.done, 'round')}"
    return f"stopped {far}; it goes on from there"


HEAD = ["table", "runs", "rounds left", "minutes", "estimated from", "here"]


def lines(tables: Sequence[RemainingRuns], minutes: float | None = None, jobs: int = 1) -> list[list[str]]:
    """Return one line a table: how much is left, how long it will take, how that was estimated, and whether it fits."""
    room, found = minutes, []
    for table in tables:
        if not table.items:
            continue
        need = table.minutes / jobs
        said = "not known" if table.unknown == len(table.items) else f"{'over ' * bool(table.unknown)}{need:.1f}"
        left = f"{len(table.items)} of {table.runs}"
        rounds = sum(item.left for item in table.items)
        found.append([table.experiment.name, left, str(rounds), said, table.basis, _fit(table, need, room)])
        room = None if room is None else max(0.0, room - need)
    return found


def _fit(table: RemainingRuns, need: float, room: float | None) -> str:
    """Say whether a table's data are here, and whether it fits into the minutes that are left for it."""
    if table.missing:
        return f"data missing: {', '.join(table.missing)}"
    if room is None:
        return "-"
    if table.unknown or need <= 0:
        return "as far as it goes" if room > 0 else "later"
    return "fits" if need <= room else (f"{100 * room / need:.0f} % fit" if room > 0 else "later")
