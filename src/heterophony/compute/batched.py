"""All pending work computed together. Each fit is captured as graphs, which run side by side; no step waits."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch

from heterophony.compute import signature
from heterophony.compute.captured_fit import DEPTHS, CapturedFit, Pairs, SharedStream, TrainingRows
from heterophony.compute.choice import (
    BRANCHES,
    CHANNELS_LAST,
    COMPILED,
    COMPILED_BRANCHES,
    COMPILED_CHANNELS_LAST,
    PRODUCTS,
    STACKED,
    WAYS,
    Choices,
    Way,
    key_of,
)
from heterophony.compute.eager import Eager, Job, loss_rows
from heterophony.compute.fit_program import FitProgram, Signatures, program_of
from heterophony.compute.stack import Stack, stackable
from heterophony.data.table import Data
from heterophony.kernel.node import Node, copy_into
from heterophony.kernel.work import Fit

log = logging.getLogger(__name__)


class PendingFit(NamedTuple):
    """A fit that waits to be computed: its place among the jobs, the job, and the rows that it trains on."""

    place: int
    job: Job
    rows: TrainingRows


class Together(NamedTuple):
    """Fits that choose one way: of one program and, if they can be stacked, of one wave, with equal sizes and rate."""

    program: FitProgram
    shared: tuple[Hashable, ...]
    fits: list[PendingFit]


@dataclass
class Seated:
    """Fits that step together in one captured fit (in a stack, several), and their places among the jobs."""

    captured: CapturedFit
    program: FitProgram
    places: list[int]
    jobs: list[Job]
    rows: list[TrainingRows]


# Compiling a stack, or a branch: seconds that it takes, more for each of a network's tensors, and the share of a step
# that it is expected to save. Branches run beside each other, so that of what one of them saves little is left.
COMPILING = {"stacked": (10.0, 1.0, 0.4), "branch": (10.0, 0.1, 0.12)}
CLOSE = 0.1  # how far compiled gradients may be from uncompiled ones, as a share of them
STREAMS = 4  # on which predictions run side by side


class Batched:
    """An executor with captured graphs. It gives the same answers as `Eager`, on a CPU to the bit.

    Arguments:
        tests: gives a node's test sets as (set, split, data), on which its products are evaluated.
        precision: "fp32", "tf32" or "bf16".
        executor: "branches" captures each fit by itself. "stacked" makes equal networks one, where that can be.
            "auto" takes the fastest way, which is timed at first use and remembered in `choices`.
        choices: where the ways that were chosen are remembered.
        only: a way that is taken without timing, for tests and benchmarks.
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
        self.captured_fits: dict[Hashable, list[CapturedFit]] = {}
        self.shared_streams: dict[str, SharedStream] = {}
        self.keys: dict[Hashable, str] = {}  # names of choices, by what they depend on
        self.failed: set[tuple[str, FitProgram]] = set()  # what could not be captured, by node
        self.alone: set[str] = set()  # nodes of which it was said that some of their work runs one at a time
        self.streams: list[torch.cuda.Stream] = []
        self.calls = 0

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        """Compute all jobs and return their answers, in the order of the jobs."""
        self.calls += 1
        fits = [(i, job) for i, job in enumerate(jobs) if isinstance(job.work, Fit)]
        answers = self._fit(self._place(fits))
        self._tidy()
        answers |= self._ask([(i, job) for i, job in enumerate(jobs) if i not in answers])
        return [answers[i] for i in range(len(jobs))]

    def _ask(self, jobs: Sequence[tuple[int, Job]]) -> dict[int, Any]:
        """Answer predictions and evaluations.

        On a GPU all of them are started, in turn on a few streams, before the first is waited for.
        """
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
        """Give each fit a place in a captured fit, if it can have one.

        Fits of one program that are always pending together choose one way together.
        """
        found: list[Seated] = []
        groups = self._pending_together(fits)
        alike: Counter[Hashable] = Counter()
        for program, _, entries in groups:
            alike[program.without_room] += len(entries)
        for program, pending, entries in groups:
            way = self._way(program, pending[1:2], entries, alike[program.without_room])
            try:
                found += self._stack(program, entries, way) if way.stacked else self._branch(program, entries, way)
            except torch.OutOfMemoryError:
                for _, job, _ in entries:
                    self._leave_alone(job, "the device has no memory left for a place of its own", program)
        return found

    def _pending_together(self, fits: Sequence[tuple[int, Job]]) -> list[Together]:
        """Group fits that can be captured: by program and, where they can be stacked, by what stacks have in common."""
        groups: dict[tuple[int, tuple[Hashable, ...]], Together] = {}
        self.signatures.forget()
        for i, job in fits:
            try:
                rows = TrainingRows(job.node, job.work)  # type: ignore[arg-type]
                sizes = tuple(job.work.sizes(job.node))  # type: ignore[union-attr]
                program = program_of(job, rows, self.signatures)
            except signature.Unknown as reason:
                self._leave_alone(job, f"cannot be told from others: {reason}")
                continue
            if sizes and not (self.failed and (job.node.id, program) in self.failed):
                # those of one stack step at one rate
                rate = (job.work.optimiser.lr,) if job.work.optimiser.changing else ()  # type: ignore[union-attr]
                together = (job.wave, sizes, *rate) if stackable(job) and self.executor != "branches" else ()
                place = id(program), together  # equal programs are one object
                if place not in groups:
                    groups[place] = Together(program, together, [])
                groups[place].fits.append(PendingFit(i, job, rows))
        return list(groups.values())

    def _branch(self, program: FitProgram, entries: Sequence[PendingFit], way: Way) -> list[Seated]:
        """Give each fit a captured fit of its own: that of its last time, or one that is free, or a new one."""
        captured_fits = self.captured_fits.setdefault((way, program), [])
        busy = [captured for captured in captured_fits if captured.used == self.calls]
        here = {captured.served: captured for captured in captured_fits if captured not in busy}
        mine = {i: here.pop(job.node.id) for i, job, _ in entries if job.node.id in here}
        free = list(here.values())
        found = []
        for i, job, rows in entries:
            captured = mine.get(i) or (free.pop() if free else None)
            if captured is None:
                shared_stream = self._shared_stream(job.node, captured_fits)
                captured = CapturedFit(job, rows, self.precision, way, shared_stream=shared_stream)
                captured_fits.append(captured)
            captured.served, captured.used = job.node.id, self.calls
            found.append(Seated(captured, program, [i], [job], [rows]))
        return found

    def _stack(self, program: FitProgram, entries: Sequence[PendingFit], way: Way) -> list[Seated]:
        """Give all fits one stack."""
        _, job, rows = entries[0]
        captured_fits = self.captured_fits.setdefault((way, program, len(entries)), [])
        captured = next((captured for captured in captured_fits if captured.used != self.calls), None)
        if captured is None:
            shared_stream = self._shared_stream(job.node, captured_fits)
            captured = Stack(job, rows, self.precision, way, len(entries), shared_stream)
            captured_fits.append(captured)
        captured.used = self.calls
        places, jobs, views = (list(part) for part in zip(*entries, strict=True))
        return [Seated(captured, program, places, jobs, views)]

    def _shared_stream(self, node: Node, others: Sequence[CapturedFit]) -> SharedStream | None:
        """Return the stream, and its memory, that all captured fits made for a participant share.

        A participant is fitted to one thing at a time. Should two of its captured fits be wanted at once after all,
        for other participants, they run one after the other.
        """
        if node.device == "cpu":
            return None
        found = self.shared_streams.get(node.id)
        if found is None or any(captured.shared_stream is found for captured in others):  # which run beside the new one
            found = self.shared_streams[node.id] = SharedStream(torch.device(node.device))
        return found

    # -- the choice ------------------------------------------------------------------------------------------
    def _way(self, program: FitProgram, sizes: tuple[Hashable, ...], entries: Sequence[PendingFit], alike: int) -> Way:
        """Return how these fits are computed: as asked, as remembered, or as timed now.

        Arguments:
            sizes: of the batches of each, where these fits are always pending together; otherwise empty.
            alike: how many fits of the program are pending, in this group and in others.
        """
        job = entries[0].job
        many = bool(sizes) and len(entries) > 1
        if self.only is not None and (many or not self.only.stacked):
            return self.only
        if self.executor == "branches" or job.node.device == "cpu":
            return STACKED if many and self.executor == "stacked" else BRANCHES
        key = self._key(program, sizes, len(entries)) if many else self._key(program, (), 1)
        chosen = self.choices.way(key)
        if chosen is None:
            chosen = self._timed(key, program, entries, many, alike)
        return chosen if many or not chosen.stacked else BRANCHES

    def _key(self, program: FitProgram, sizes: tuple[Hashable, ...], fits: int) -> str:
        """Return the name under which the choice for so many fits together is remembered."""
        parts = program.without_room, sizes, fits, self.precision, self.executor
        if parts not in self.keys:
            if len(self.keys) > 256:
                self.keys.clear()
            self.keys[parts] = key_of(*parts)
        return self.keys[parts]

    def _timed(self, key: str, program: FitProgram, entries: Sequence[PendingFit], many: bool, alike: int) -> Way:
        """Time the ways on this work, before any state comes in; remember and return the fastest."""
        ways = [] if many and self.executor == "stacked" else [BRANCHES, CHANNELS_LAST]
        ways += [STACKED] if many else []
        times: dict[str, float] = {}
        for way in ways:
            self._try(way, program, entries, times)
        job = entries[0].job
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        began, tried = time.perf_counter(), len(times)
        for way in self._worth_compiling(job, many, alike / len(entries), times) if times else ():
            self._try(way, program, entries, times)
        if len(times) > tried:
            log.info("compiling took %.0f s", time.perf_counter() - began)
        if not times:
            return BRANCHES  # which will say why it cannot be
        best = self._fastest(program, times)
        while best.compiled and not self._agrees(best, entries):
            log.warning("%s is not used: its gradients are not known to be those of the uncompiled step", best.name)
            del times[best.name]
            best = self._fastest(program, times)
        names = " and ".join(type(node.models[name]).__name__ for name in work.names)
        self.choices.keep(key, best, times, f"{len(entries)} x {names}, batch {work.batch}")
        return best

    def _worth_compiling(self, job: Job, many: bool, groups: float, times: Mapping[str, float]) -> list[Way]:
        """Return the compiled ways that should earn back the seconds they take, in what is left of the run."""
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
            ways.append(COMPILED_CHANNELS_LAST if best.channels_last else COMPILED_BRANCHES)
        if many and pays("stacked"):
            ways.append(COMPILED)
            if tensors <= DEPTHS[0]:  # written out, a deep network's convolutions gain nothing
                ways.append(PRODUCTS)
        return ways

    def _fastest(self, program: FitProgram, times: Mapping[str, float]) -> Way:
        """Return the fastest way. What was captured for the others gives its memory back."""
        best = WAYS[min(times, key=lambda name: times[name])]
        for place in list(self.captured_fits):
            if isinstance(place, tuple) and place[1] == program and place[0] != best:
                del self.captured_fits[place]
        return best

    def _agrees(self, way: Way, entries: Sequence[PendingFit]) -> bool:
        """Tell whether a compiled way's gradients are those of the uncompiled step: compilers err.

        Dropout is off for this comparison, and rounding is allowed for.
        """
        _, jobs, rows = (list(part) for part in zip(*(entries if way.stacked else entries[:1]), strict=True))
        made = Stack if way.stacked else CapturedFit
        found: list[list[torch.Tensor]] = []  # by way and size of a batch
        try:
            for each in (replace(way, compiled=False, products=False), way):
                captured = made(jobs[0], rows[0], self.precision, each, len(jobs), dropout=False)
                found.append(captured.gradients(jobs, rows))
                if isinstance(captured, Stack):
                    captured.descent = None  # which refers to the stack: its memory would be held
        except Exception as error:
            log.info("%s: cannot be checked: %s", way.name, _line(error))
            return False
        for right, compiled in zip(*found, strict=True):
            off, whole = (right - compiled).norm().item(), right.norm().item()
            if math.isfinite(whole) and not off <= CLOSE * whole:  # of what is not finite anyway nothing can be said
                return False
        return True

    def _try(self, way: Way, program: FitProgram, entries: Sequence[PendingFit], times: dict[str, float]) -> None:
        """Write the seconds of a step of all these fits into `times`. A way that does not work here is left out."""
        seated: list[Seated] = []
        try:
            seated = self._stack(program, entries, way) if way.stacked else self._branch(program, entries, way)
            for each in seated:
                each.captured.prepare(each.jobs[0], trial=True)
            times[way.name] = _seconds([each.captured for each in seated])
        except Exception as error:
            log.info("%s: cannot be used: %s", way.name, _line(error))
            self.captured_fits.pop((way, program, len(entries)) if way.stacked else (way, program), None)
        for each in seated:
            each.captured.used = -1

    def _tidy(self) -> None:
        """Drop what was captured and has not been used lately, so that its memory is free again."""
        captured_fits = [captured for found in self.captured_fits.values() for captured in found]
        current = sum(captured.used == self.calls for captured in captured_fits)
        if current and len(captured_fits) > 64 + 4 * current:
            oldest_first = sorted(captured_fits, key=lambda captured: captured.used)
            old = {id(captured) for captured in oldest_first[: len(captured_fits) - 32 - 2 * current]}
            for key, found in self.captured_fits.items():
                self.captured_fits[key] = [captured for captured in found if id(captured) not in old]

    def _fit(self, seated: Sequence[Seated]) -> dict[int, Any]:
        """Compute all fits together; return their answers by place."""
        running: list[Seated] = []
        copies: Pairs = []
        zeros: list[torch.Tensor] = []
        for each in seated:
            entered = self._entered(each)
            if entered is not None:
                put, clear = entered
                copies += put
                zeros += clear
                running.append(each)
        if not running:
            return {}
        if any(each.captured.fresh for each in running):
            torch.cuda.empty_cache()
            for each in running:
                each.captured.fresh = False
        with torch.no_grad():
            torch._foreach_zero_(zeros)
        _copy(copies)
        self._replay(running)
        answers = self._answers(running)
        _copy([pair for each in running for pair in each.captured.leave(each.jobs)])
        for each in running:
            for place, job in zip(each.places, each.jobs, strict=True):
                job.rows += loss_rows(job, answers[place])
                self.eager.refresh(job)
        return answers

    def _entered(self, seated: Seated) -> tuple[Pairs, list[torch.Tensor]] | None:
        """Prepare fits. Return what is to be copied in and what to zero; None where they cannot be captured.

        What cannot be captured (a step that asks the device for a value) runs one at a time instead, which also says
        whatever else is wrong with it.
        """
        epochs = [dict(job.node.epochs) for job in seated.jobs]
        try:
            return seated.captured.enter(seated.jobs, seated.rows)
        except Exception as error:
            for job, before in zip(seated.jobs, epochs, strict=True):
                job.node.epochs = before  # from the same orders
                self._leave_alone(job, f"{type(error).__name__}: {_line(error)}", seated.program)
        for captured_fits in self.captured_fits.values():
            if seated.captured in captured_fits:
                captured_fits.remove(seated.captured)
        return None

    def _answers(self, running: Sequence[Seated]) -> dict[int, Any]:
        """Return the answers by place. All loss sums are one question to the device, asked when somebody reads them."""
        sums = torch.cat([each.captured.total.flatten() for each in running if each.captured.total is not None])
        totals = cache(sums.tolist)
        answers, at = {}, 0
        for each in running:
            terms = len(each.captured.terms)
            for i, (place, job) in enumerate(zip(each.places, each.jobs, strict=True)):
                own = slice(at, at := at + terms)
                answers[place] = each.captured.fitted(i, job, lambda own=own: totals()[own])  # type: ignore[misc]
        return answers

    def _replay(self, running: Sequence[Seated]) -> None:
        """Replay all captured fits, fed in turn, so that no stream runs dry while another is filled."""
        cuda = running[0].captured.cuda
        if cuda:
            main = torch.cuda.current_stream(running[0].captured.device)
            for each in running:
                each.captured.stream.wait_stream(main)
        feeds = [each.captured.replay(each.jobs) for each in running]
        while feeds:
            feeds = [feed for feed in feeds if next(feed, self) is not self]
        if cuda:
            for each in running:
                main.wait_stream(each.captured.stream)

    def _leave_alone(self, job: Job, why: str, program: FitProgram | None = None) -> None:
        """Have this work run one at a time, by `Eager`; say why, once a node."""
        if program is not None:
            self.failed.add((job.node.id, program))
        if job.node.id not in self.alone:
            log.warning("node %s runs one at a time: %s", job.node.id, why)
        self.alone.add(job.node.id)


def _line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [""])[0][:200]


def _seconds(captured_fits: Sequence[CapturedFit], repeats: int = 5) -> float:
    """Return the seconds that a step of all these takes on the device, with whatever happens to be in them."""
    main = torch.cuda.current_stream(captured_fits[0].device)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    for repeat in range(repeats + 1):
        if repeat == 1:  # the first one is for warming up
            began.record(main)
        for captured in captured_fits:
            captured.at.zero_()
            captured.stream.wait_stream(main)
            with torch.cuda.stream(captured.stream):
                captured.graphs[captured.plan[0]].replay()
        for captured in captured_fits:
            main.wait_stream(captured.stream)
    ended.record(main)
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3 / repeats / max(captured.plan[0][1] for captured in captured_fits)


def _copy(pairs: Pairs) -> None:
    copy_into([to for to, _ in pairs], [of for _, of in pairs])
