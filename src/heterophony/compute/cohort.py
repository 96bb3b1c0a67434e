"""All pending work together: each fit in a lane of its own, replayed side by side; nothing waits inside an epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heterophony.compute import signature
from heterophony.compute.eager import Eager, Job, located, loss_rows
from heterophony.compute.lane import Lane, Networks, Pairs, Rows, kind_of
from heterophony.compute.stack import Stack, stackable
from heterophony.data.table import Data
from heterophony.node import copy_into
from heterophony.work import Fit

log = logging.getLogger(__name__)


@dataclass
class Seated:
    """Fits that step together in a lane, and their places among the jobs."""

    lane: Lane
    places: list[int]
    jobs: list[Job]
    rows: list[Rows]


class Cohort:
    """The compute seam with captured graphs: the same answers as `Eager`, to the bit on a CPU."""

    def __init__(
        self,
        tests: Callable[[str], Sequence[tuple[str, str, Data]]] = lambda node: (),
        precision: str = "fp32",
        stacked: dict[str, bool] | None = None,
        channels_last: bool = False,
    ) -> None:
        self.channels_last = channels_last
        self.eager, self.precision, self.stacked = Eager(tests, precision), precision, stacked
        self.networks = Networks()
        self.lanes: dict[Hashable, list[Lane]] = {}
        self.alone: set[str] = set()  # nodes whose work could not be captured, and why was said

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        fits = [(i, job) for i, job in enumerate(jobs) if isinstance(job.work, Fit)]
        answers = self._fit(self._place(fits))
        return [answers[i] if i in answers else self.eager.one(job) for i, job in enumerate(jobs)]

    def _place(self, fits: Sequence[tuple[int, Job]]) -> list[Seated]:
        """A lane for each fit that can have one: that of its last time, or one that is free, or a new one."""
        wanted: dict[Hashable, list[tuple[int, Job, Rows]]] = {}
        for i, job in fits:
            if job.node.id in self.alone:
                continue
            try:
                rows = Rows(job.node, job.work)  # type: ignore[arg-type]
                if job.work.sizes(job.node):  # type: ignore[union-attr]
                    wanted.setdefault(kind_of(job, rows, self.networks), []).append((i, job, rows))
            except signature.Unknown as reason:
                self._leave_alone(job, f"cannot be told from others: {reason}")
        return [seated for kind, entries in wanted.items() for seated in self._seat(kind, entries)]

    def _seat(self, kind: Hashable, entries: list[tuple[int, Job, Rows]]) -> list[Seated]:
        if self.stacked is not None and len(entries) > 1 and all(stackable(job) for _, job, _ in entries):
            return self._stack(kind, entries)
        lanes = self.lanes.setdefault(kind, [])
        here = {lane.served: lane for lane in lanes}
        mine = {i: here.pop((job.node.id,)) for i, job, _ in entries if (job.node.id,) in here}
        free = list(here.values())
        found = []
        for i, job, rows in entries:
            lane = mine.get(i) or (free.pop() if free else None)
            if lane is None:
                lane = Lane(job, rows, self.precision, channels_last=self.channels_last)
                lanes.append(lane)
            lane.served = (job.node.id,)
            found.append(Seated(lane, [i], [job], [rows]))
        return found

    def _stack(self, kind: Hashable, entries: list[tuple[int, Job, Rows]]) -> list[Seated]:
        """Fits with the same batches together; whoever has other ones, or is left over, in a stack of its own."""
        groups: dict[tuple[int, ...], list[tuple[int, Job, Rows]]] = {}
        for entry in entries:
            groups.setdefault(tuple(entry[1].work.sizes(entry[1].node)), []).append(entry)  # type: ignore[union-attr]
        found = []
        for sizes, members in groups.items():
            lanes = self.lanes.setdefault(("stack", kind, sizes, len(members)), [])
            if not lanes:
                lanes.append(Stack(members[0][1], members[0][2], self.precision, len(members), **self.stacked or {}))
            found.append(Seated(lanes[0], *(list(part) for part in zip(*members, strict=True))))
        return found

    def _fit(self, seated: Sequence[Seated]) -> dict[int, Any]:
        running: list[Seated] = []
        copies: Pairs = []
        zeros: list[torch.Tensor] = []
        for each in seated:
            epochs = [dict(job.node.epochs) for job in each.jobs]
            try:
                put, clear = each.lane.enter(each.jobs, each.rows)
            except Exception as error:
                if not (each.lane.cuda and isinstance(error, RuntimeError)):
                    raise located(each.jobs[0], error) from error
                # what cannot be captured (a step that asks the device for a value) runs one at a time instead
                for job, before in zip(each.jobs, epochs, strict=True):
                    job.node.epochs = before  # from the same orders
                    self._leave_alone(job, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
                for lanes in self.lanes.values():
                    if each.lane in lanes:
                        lanes.remove(each.lane)
                continue
            copies, zeros = copies + put, zeros + clear
            running.append(each)
        if not running:
            return {}
        with torch.no_grad():
            torch._foreach_zero_(zeros)
        _copy(copies)
        self._replay(running)
        answers = self._answers(running)
        _copy([pair for each in running for pair in each.lane.leave(each.jobs)])
        return answers

    def _answers(self, running: Sequence[Seated]) -> dict[int, Any]:
        """All loss sums in one question to the device."""
        totals = torch.cat([each.lane.total.flatten() for each in running if each.lane.total is not None]).tolist()
        answers = {}
        for each in running:
            terms = len(each.lane.terms)
            for i, (place, job) in enumerate(zip(each.places, each.jobs, strict=True)):
                own, totals = totals[:terms], totals[terms:]
                answers[place] = each.lane.fitted(i, job, own)
                job.rows += loss_rows(job, answers[place])
        return answers

    def _replay(self, running: Sequence[Seated]) -> None:
        """Feed all lanes in turn, so that no stream runs dry while another is filled."""
        cuda = running[0].lane.cuda
        if cuda:
            main = torch.cuda.current_stream()
            for each in running:
                each.lane.stream.wait_stream(main)
        feeds = [each.lane.replay(each.jobs) for each in running]
        while feeds:
            feeds = [feed for feed in feeds if next(feed, self) is not self]
        if cuda:
            for each in running:
                main.wait_stream(each.lane.stream)

    def _leave_alone(self, job: Job, why: str) -> None:
        self.alone.add(job.node.id)
        log.warning("node %s runs one at a time: %s", job.node.id, why)


def _copy(pairs: Pairs) -> None:
    copy_into([to for to, _ in pairs], [of for _, of in pairs])
