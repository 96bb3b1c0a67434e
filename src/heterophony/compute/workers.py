"""Work on several cores of a CPU: one thread a process, the same bits for any number of them.

Children are forked for one list of jobs, so they see every node as it is; models lie in memory that is shared with them
and are trained in place, and only answers and optimiser states come back through a pipe.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import torch

from heterophony import codec
from heterophony.compute.eager import Eager, Job, WorkError
from heterophony.node import Node
from heterophony.work import Fit, Fitted, Mark

WORTHWHILE = 0.15  # seconds of work for which forking pays
ALIGNED = 64


class Workers:
    """The compute seam on several processes, dealt by what each job took before; short or new work is done here."""

    def __init__(self, inner: Eager, workers: int) -> None:
        self.inner, self.workers = inner, workers
        self.fork = multiprocessing.get_context("fork")
        self.forks = 0  # how often work was spread
        self.paces: dict[tuple[str, ...], float] = {}  # seconds a row, by kind of job, as seen last

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        rows = [self._rows(job) for job in jobs]
        paces = [self.paces.get(kind(job), self.paces.get(alike(job))) for job in jobs]
        costs = [n * (pace or 0.0) for n, pace in zip(rows, paces, strict=True)]
        new = any(n and pace is None for n, pace in zip(rows, paces, strict=True))
        busy = sum(n > 0 for n in rows)
        if new or busy < 2 or sum(costs) - max(costs) < WORTHWHILE:  # what the others would gain us
            return [self._timed(job)[0] for job in jobs]
        for job in jobs:
            if isinstance(job.work, Fit) and not job.node.shared:
                models_into(mmap.mmap(-1, room_for(job.node)), job.node)
        self.forks += 1
        return self._spread(jobs, _bins(costs, min(self.workers, busy)))

    def _timed(self, job: Job) -> tuple[Any, float]:
        began = time.perf_counter()
        answer = self.inner.one(job)
        pace = (time.perf_counter() - began) / max(self._rows(job), 1.0)
        self._learn(job, pace)
        return answer, pace

    def _learn(self, job: Job, pace: float) -> None:
        self.paces[kind(job)] = self.paces[alike(job)] = pace

    def _rows(self, job: Job) -> float:
        """How many rows a job goes through."""
        if isinstance(job.work, Mark):
            return float(sum(len(data) for _, _, data in self.inner.tests(job.node.id))) if job.evaluate else 0.0
        return job.work.samples(job.node)

    def _spread(self, jobs: Sequence[Job], bins: list[list[int]]) -> list[Any]:
        """The first bin here, each other one in a child."""
        children = []
        for places in bins[1:]:
            ours, theirs = self.fork.Pipe(duplex=False)
            child = self.fork.Process(target=self._child, args=(theirs, [jobs[i] for i in places]), daemon=True)
            child.start()
            theirs.close()
            children.append((child, ours, places))
        answers: dict[int, Any] = {}
        try:
            answers |= {i: self._timed(jobs[i])[0] for i in bins[0]}
            for child, pipe, places in children:
                for i, value in zip(places, _received(child, pipe, [jobs[i] for i in places]), strict=True):
                    answers[i] = _taken(jobs[i], value)
                    self._learn(jobs[i], value["pace"])
        finally:
            for child, pipe, _ in children:
                pipe.close()
                child.join()
        return [answers[i] for i in range(len(jobs))]

    def _child(self, pipe: Connection, jobs: Sequence[Job]) -> None:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
            die_with_parent()
            found = [_given(job, *self._timed(job)) for job in jobs]
            pipe.send_bytes(codec.pack(found))
        except WorkError as error:
            pipe.send_bytes(codec.pack({"error": str(error)}))
        finally:
            pipe.close()
            os._exit(0)  # nothing of the parent's (locks, buffers, handlers) is this process's to clean up


def die_with_parent() -> None:
    """No orphans, also of a parent that is killed with -9: a process of a pool would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    elif parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def kind(job: Job) -> tuple[str, ...]:
    """Jobs that take about the same time a row."""
    names = job.work.names if isinstance(job.work, Fit) else (getattr(job.work, "model", ""),)
    return job.node.id, type(job.work).__name__, *names


def alike(job: Job) -> tuple[str, ...]:
    """Jobs of participants that were not met before take what others' took who have such networks."""
    _, *rest = kind(job)
    return ("", *rest, *(type(slot.module).__qualname__ for slot in job.node.slots.values()))


def _bins(costs: Sequence[float], count: int) -> list[list[int]]:
    """The dearest job first, each to whoever has the least to do."""
    bins: list[list[int]] = [[] for _ in range(count)]
    load = [0.0] * count
    for place in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        least = load.index(min(load))
        bins[least].append(place)
        load[least] += costs[place]
    return [sorted(each) for each in bins if each]


def _tensors(node: Node) -> list[torch.Tensor]:
    return [tensor for slot in node.slots.values() for tensor in slot.tensors().values() if tensor.numel()]


def room_for(node: Node) -> int:
    """Bytes that a node's models need there."""
    return max(1, sum(tensor.nbytes + ALIGNED for tensor in _tensors(node)))


def models_into(memory: mmap.mmap, node: Node) -> None:
    """Move a node's models into memory that forked processes write to for us; the models keep it alive."""
    at = 0
    for tensor in _tensors(node):
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=at)
        place = flat.as_strided(tensor.shape, tensor.stride()) if _dense(tensor) else flat.view(tensor.shape)
        with torch.no_grad():
            place.copy_(tensor)
            tensor.data = place
        at += -(-tensor.nbytes // ALIGNED) * ALIGNED
    node.shared = True


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def _given(job: Job, answer: Any, pace: float) -> dict[str, Any]:
    """What a child has to say of a job."""
    state = {"epochs": job.node.epochs, "optimisers": job.node.optimisers}
    found: dict[str, Any] = {"rows": job.rows, "pace": pace, **state}
    return found | ({"fitted": asdict(answer)} if isinstance(answer, Fitted) else {"answer": answer})


def _taken(job: Job, value: dict[str, Any]) -> Any:
    job.rows += value["rows"]
    job.node.epochs, job.node.optimisers = value["epochs"], value["optimisers"]
    return Fitted(**value["fitted"]) if "fitted" in value else value["answer"]


def _received(child: Any, pipe: Connection, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    try:
        value = codec.unpack(pipe.recv_bytes())
    except EOFError:
        child.join()
        names = ", ".join(job.node.id for job in jobs[:5])
        raise WorkError(f"the process that worked for {names} died (exit {child.exitcode})") from None
    if isinstance(value, dict):
        raise WorkError(value["error"])
    return list(value)
