"""All pending work together: each fit in a lane of its own, replayed side by side; nothing waits inside an epoch."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from heterophony.compute import signature
from heterophony.compute.captured_fit import DEPTHS, Lane, Pairs, Rows, Track
from heterophony.compute.choice import (
    BRANCHES,
    COMPILED,
    COMPILED_BRANCHES,
    COMPILED_LAST,
    LAST,
    PRODUCTS,
    STACKED,
    WAYS,
    Choices,
    Way,
    key_of,
)
from heterophony.compute.eager import Eager, Job, loss_rows
from heterophony.compute.fit_program import Kind, Signatures, kind_of
from heterophony.compute.stack import Stack, stackable
from heterophony.data.table import Data
from heterophony.kernel.node import Node, copy_into
from heterophony.kernel.work import Fit

log = logging.getLogger(__name__)


@dataclass
class Seated:
    """Fits that step together in a lane, and their places among the jobs."""

    lane: Lane
    kind: Kind
    places: list[int]
    jobs: list[Job]
    rows: list[Rows]


Entry = tuple[int, Job, Rows]
# Compiling a stack, or a branch: seconds that it takes, more for each of a network's tensors, and the share of a step
# that it is expected to save. Branches run beside each other, so that of what one of them saves little is left.
COMPILING = {"stacked": (10.0, 1.0, 0.4), "branch": (10.0, 0.1, 0.12)}
CLOSE = 0.1  # how far compiled gradients may be from uncompiled ones, as a share of them
STREAMS = 4  # on which predictions run side by side


class Cohort:
    """The compute seam with captured graphs: the same answers as `Eager`, to the bit on a CPU.

    `executor` is "branches" (each fit in a lane of its own), "stacked" (equal networks as one, where that can be), or
    "auto": the faster of all ways, timed at first use and remembered in `choices`.
    """

    def __init__(
        self,
        tests: Callable[[str], Sequence[tuple[str, str, Data]]] = lambda node: (),
        precision: str = "fp32",
        executor: str = "branches",
        choices: Choices | None = None,
        only: Way | None = None,
    ) -> None:
        self.eager, self.precision, self.executor, self.only = Eager(tests, precision), precision, executor, only
        self.choices = choices or Choices()
        self.signatures = Signatures()
        self.lanes: dict[Hashable, list[Lane]] = {}
        self.tracks: dict[str, Track] = {}
        self.keys: dict[Hashable, str] = {}
        self.failed: set[tuple[str, Kind]] = set()  # what could not be captured, by node
        self.alone: set[str] = set()  # nodes of which it was said that some of their work runs one at a time
        self.streams: list[torch.cuda.Stream] = []
        self.calls = 0

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        self.calls += 1
        fits = [(i, job) for i, job in enumerate(jobs) if isinstance(job.work, Fit)]
        answers = self._fit(self._place(fits))
        self._tidy()
        answers |= self._ask([(i, job) for i, job in enumerate(jobs) if i not in answers])
        return [answers[i] for i in range(len(jobs))]

    def _ask(self, jobs: Sequence[tuple[int, Job]]) -> dict[int, Any]:
        """Predictions and evaluations: all under way, in turn on a few streams, before the first is waited for."""
        if not jobs or jobs[0][1].node.device == "cpu":
            return {i: self.eager.one(job) for i, job in jobs}
        device = torch.device(jobs[0][1].node.device)
        main = torch.cuda.current_stream(device)
        self.streams = self.streams or [torch.cuda.Stream(device) for _ in range(STREAMS)]  # type: ignore[no-untyped-call]
        for stream in self.streams:
            stream.wait_stream(main)
        begun = []
        for n, (i, job) in enumerate(jobs):
            with torch.cuda.stream(self.streams[n % STREAMS]):
                begun.append((i, self.eager.begin(job)))
        for stream in self.streams:
            main.wait_stream(stream)
        return {i: end() for i, end in begun}

    def _place(self, fits: Sequence[tuple[int, Job]]) -> list[Seated]:
        """A lane for each fit that can have one; fits of one kind that are always pending together choose together."""
        groups: dict[tuple[Kind, tuple[Hashable, ...]], list[Entry]] = {}
        self.signatures.programs.clear()  # reactions have run since: closures may hold other values
        for i, job in fits:
            try:
                rows = Rows(job.node, job.work)  # type: ignore[arg-type]
                sizes = tuple(job.work.sizes(job.node))  # type: ignore[union-attr]
                kind = kind_of(job, rows, self.signatures)
            except signature.Unknown as reason:
                self._leave_alone(job, f"cannot be told from others: {reason}")
                continue
            if sizes and (job.node.id, kind) not in self.failed:
                together = (job.wave, sizes) if stackable(job) and self.executor != "branches" else ()
                groups.setdefault((kind, together), []).append((i, job, rows))
        found: list[Seated] = []
        alike = Counter(kind[:-1] for (kind, _), entries in groups.items() for _ in entries)
        for (kind, pending), entries in groups.items():
            way = self._way(kind, pending[1:], entries, alike[kind[:-1]])
            try:
                found += self._stack(kind, entries, way) if way.stacked else self._branch(kind, entries, way)
            except torch.OutOfMemoryError:
                for _, job, _ in entries:
                    self._leave_alone(job, "the device has no memory left for a place of its own", kind)
        return found

    def _branch(self, kind: Kind, entries: Sequence[Entry], way: Way) -> list[Seated]:
        """A lane each: that of its last time, or one that is free, or a new one."""
        lanes = self.lanes.setdefault((way, kind), [])
        busy = [lane for lane in lanes if lane.used == self.calls]
        here = {lane.served: lane for lane in lanes if lane not in busy}
        mine = {i: here.pop(job.node.id) for i, job, _ in entries if job.node.id in here}
        free = list(here.values())
        found = []
        for i, job, rows in entries:
            lane = mine.get(i) or (free.pop() if free else None)
            if lane is None:
                track = self._track(job.node, lanes)
                lane = Lane(job, rows, self.precision, way, track=track)
                lanes.append(lane)
            lane.served, lane.used = job.node.id, self.calls
            found.append(Seated(lane, kind, [i], [job], [rows]))
        return found

    def _stack(self, kind: Kind, entries: Sequence[Entry], way: Way) -> list[Seated]:
        """One stack for all."""
        _, job, rows = entries[0]
        lanes = self.lanes.setdefault((way, kind, len(entries)), [])
        lane = next((lane for lane in lanes if lane.used != self.calls), None)
        if lane is None:
            track = self._track(job.node, lanes)
            lane = Stack(job, rows, self.precision, way, len(entries), track)
            lanes.append(lane)
        lane.used = self.calls
        places, jobs, views = (list(part) for part in zip(*entries, strict=True))
        return [Seated(lane, kind, places, jobs, views)]

    def _track(self, node: Node, others: Sequence[Lane]) -> Track | None:
        """A participant is fitted to one thing at a time, so that lanes made for it share the memory of one track.

        Should two of them be wanted together after all, for other participants, they run one after the other.
        """
        if node.device == "cpu":
            return None
        found = self.tracks.get(node.id)
        if found is None or any(lane.track is found for lane in others):  # which run beside the new one
            found = self.tracks[node.id] = Track(torch.device(node.device))
        return found

    # -- the choice ------------------------------------------------------------------------------------------
    def _way(self, kind: Kind, sizes: tuple[Hashable, ...], entries: Sequence[Entry], alike: int) -> Way:
        """How these fits are computed: as asked, as remembered, or as timed now; `alike` are pending in all."""
        job = entries[0][1]
        many = bool(sizes) and len(entries) > 1
        if self.only is not None and (many or not self.only.stacked):
            return self.only
        if self.executor == "branches" or job.node.device == "cpu":
            return STACKED if many and self.executor == "stacked" else BRANCHES
        program = kind[:-1]  # how many rows there is room for does not matter to the choice
        parts = program, sizes if many else (), len(entries) if many else 1, self.precision, self.executor
        key = self.keys.get(parts)
        if key is None:
            if len(self.keys) > 256:
                self.keys.clear()
            key = self.keys[parts] = key_of(*parts)
        chosen = self.choices.way(key)
        if chosen is None:
            chosen = self._timed(key, kind, entries, many, alike)
        return chosen if many or not chosen.stacked else BRANCHES

    def _timed(self, key: str, kind: Kind, entries: Sequence[Entry], many: bool, alike: int) -> Way:
        """Try the ways on this work, before any state comes in, and remember the fastest."""
        ways = [] if many and self.executor == "stacked" else [BRANCHES, LAST]
        ways += [STACKED] if many else []
        times: dict[str, float] = {}
        for way in ways:
            self._try(way, kind, entries, times)
        job = entries[0][1]
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        began, tried = time.perf_counter(), len(times)
        for way in self._worth_compiling(job, many, alike / len(entries), times) if times else ():
            self._try(way, kind, entries, times)
        if len(times) > tried:
            log.info("compiling took %.0f s", time.perf_counter() - began)
        if not times:
            return BRANCHES  # which will say why it cannot be
        best = self._fastest(kind, times)
        while best.compiled and not self._agrees(best, entries):
            log.warning("%s is not used: its gradients are not known to be those of the uncompiled step", best.name)
            del times[best.name]
            best = self._fastest(kind, times)
        names = " and ".join(type(node.models[name]).__name__ for name in work.names)
        self.choices.keep(key, best, times, f"{len(entries)} x {names}, batch {work.batch}")
        return best

    def _worth_compiling(self, job: Job, many: bool, groups: float, times: Mapping[str, float]) -> list[Way]:
        """Compiled ways that should earn back the seconds they take, in what is left of the run for such groups."""
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        best = WAYS[min(times, key=lambda name: times[name])]
        tensors = sum(len(node.slots[name].tensors()) for name in work.names)
        left = job.left * len(work.sizes(node)) * groups * times[best.name]

        def pays(kind: str) -> bool:
            once, each, gain = COMPILING[kind]
            return left * gain > once + each * tensors

        ways: list[Way] = []
        if not best.stacked and pays("branch"):
            ways.append(COMPILED_LAST if best.channels_last else COMPILED_BRANCHES)
        if many and pays("stacked"):
            ways.append(COMPILED)
            if tensors <= DEPTHS[0]:  # written out, a deep network's convolutions gain nothing
                ways.append(PRODUCTS)
        return ways

    def _fastest(self, kind: Kind, times: Mapping[str, float]) -> Way:
        """The fastest way; the lanes of all others give their memory back."""
        best = WAYS[min(times, key=lambda name: times[name])]
        for place in list(self.lanes):
            if isinstance(place, tuple) and place[1] == kind and place[0] != best:
                del self.lanes[place]
        return best

    def _agrees(self, way: Way, entries: Sequence[Entry]) -> bool:
        """Whether gradients are those of the uncompiled step, chance (dropout) and rounding aside: compilers err."""
        _, jobs, rows = (list(part) for part in zip(*(entries if way.stacked else entries[:1]), strict=True))
        made = Stack if way.stacked else Lane
        found: list[list[torch.Tensor]] = []  # by way and size of a batch
        try:
            for each in (replace(way, compiled=False, products=False), way):
                lane = made(jobs[0], rows[0], self.precision, each, len(jobs), chance=False)
                found.append(lane.gradients(jobs, rows))
                if isinstance(lane, Stack):
                    lane.descent = None  # which refers to the stack: its memory would be held
        except Exception as error:
            log.info("%s: cannot be checked: %s", way.name, _line(error))
            return False
        for right, compiled in zip(*found, strict=True):
            off, whole = (right - compiled).norm().item(), right.norm().item()
            if math.isfinite(whole) and not off <= CLOSE * whole:  # of what is not finite anyway nothing can be said
                return False
        return True

    def _try(self, way: Way, kind: Kind, entries: Sequence[Entry], times: dict[str, float]) -> None:
        """Seconds of a step of all of them; a way that does not work here is left out."""
        seated: list[Seated] = []
        try:
            seated = self._stack(kind, entries, way) if way.stacked else self._branch(kind, entries, way)
            for each in seated:
                each.lane.prepare(each.jobs[0], trial=True)
            times[way.name] = _seconds([each.lane for each in seated])
        except Exception as error:
            log.info("%s: cannot be used: %s", way.name, _line(error))
            self.lanes.pop((way, kind, len(entries)) if way.stacked else (way, kind), None)
        for each in seated:
            each.lane.used = -1

    def _tidy(self) -> None:
        """Lanes that nobody has asked for lately give their memory back."""
        lanes = [lane for found in self.lanes.values() for lane in found]
        current = sum(lane.used == self.calls for lane in lanes)
        if current and len(lanes) > 64 + 4 * current:
            old = {id(lane) for lane in sorted(lanes, key=lambda lane: lane.used)[: len(lanes) - 32 - 2 * current]}
            self.lanes = {key: [lane for lane in found if id(lane) not in old] for key, found in self.lanes.items()}

    def _fit(self, seated: Sequence[Seated]) -> dict[int, Any]:
        running: list[Seated] = []
        copies: Pairs = []
        zeros: list[torch.Tensor] = []
        for each in seated:
            epochs = [dict(job.node.epochs) for job in each.jobs]
            try:
                put, clear = each.lane.enter(each.jobs, each.rows)
            except Exception as error:
                # what cannot be captured (a step that asks the device for a value) runs one at a time instead,
                # which also says whatever else is wrong with it
                for job, before in zip(each.jobs, epochs, strict=True):
                    job.node.epochs = before  # from the same orders
                    self._leave_alone(job, f"{type(error).__name__}: {_line(error)}", each.kind)
                for lanes in self.lanes.values():
                    if each.lane in lanes:
                        lanes.remove(each.lane)
                continue
            copies, zeros = copies + put, zeros + clear
            running.append(each)
        if not running:
            return {}
        if any(each.lane.fresh for each in running):
            torch.cuda.empty_cache()
            for each in running:
                each.lane.fresh = False
        with torch.no_grad():
            torch._foreach_zero_(zeros)
        _copy(copies)
        self._replay(running)
        answers = self._answers(running)
        _copy([pair for each in running for pair in each.lane.leave(each.jobs)])
        for each in running:
            for place, job in zip(each.places, each.jobs, strict=True):
                job.rows += loss_rows(job, answers[place])
                self.eager.refresh(job)
        return answers

    def _answers(self, running: Sequence[Seated]) -> dict[int, Any]:
        """All loss sums are one question to the device, asked when somebody reads them."""
        sums = torch.cat([each.lane.total.flatten() for each in running if each.lane.total is not None])
        totals = cache(sums.tolist)
        answers, at = {}, 0
        for each in running:
            terms = len(each.lane.terms)
            for i, (place, job) in enumerate(zip(each.places, each.jobs, strict=True)):
                own = slice(at, at := at + terms)
                answers[place] = each.lane.fitted(i, job, lambda own=own: totals()[own])  # type: ignore[misc]
        return answers

    def _replay(self, running: Sequence[Seated]) -> None:
        """Feed all lanes in turn, so that no stream runs dry while another is filled."""
        cuda = running[0].lane.cuda
        if cuda:
            main = torch.cuda.current_stream(running[0].lane.device)
            for each in running:
                each.lane.stream.wait_stream(main)
        feeds = [each.lane.replay(each.jobs) for each in running]
        while feeds:
            feeds = [feed for feed in feeds if next(feed, self) is not self]
        if cuda:
            for each in running:
                main.wait_stream(each.lane.stream)

    def _leave_alone(self, job: Job, why: str, kind: Kind | None = None) -> None:
        if kind is not None:
            self.failed.add((job.node.id, kind))
        if job.node.id not in self.alone:
            log.warning("node %s runs one at a time: %s", job.node.id, why)
        self.alone.add(job.node.id)


def _line(error: Exception) -> str:
    """The first line of what it says."""
    return (str(error).splitlines() or [""])[0][:200]


def _seconds(lanes: Sequence[Lane], repeats: int = 5) -> float:
    """What a step of all lanes takes on the device, with whatever happens to be in them."""
    main = torch.cuda.current_stream(lanes[0].device)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for repeat in range(repeats + 1):
        if repeat == 1:  # the first one is for warming up
            began.record(main)
        for lane in lanes:
            lane.at.zero_()
            lane.stream.wait_stream(main)
            with torch.cuda.stream(lane.stream):
                lane.graphs[lane.plan[0]].replay()
        for lane in lanes:
            main.wait_stream(lane.stream)
    ended.record(main)
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3 / repeats / max(lane.plan[0][1] for lane in lanes)


def _copy(pairs: Pairs) -> None:
    copy_into([to for to, _ in pairs], [of for _, of in pairs])
