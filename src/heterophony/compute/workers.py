"""Work on several cores of a CPU: one thread a process, the same bits for any number of them.

Children are forked for one list of jobs, so they see every node as it is. Models lie in memory that is shared with
them, and are trained in place. Only answers and optimiser states come back through a pipe. Answers are given in order,
as soon as they are there, so that what reactions do with them overlaps with the work of the rest.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import torch

from heterophony.base import codec
from heterophony.compute.eager import Eager, Job, WorkError
from heterophony.compute.memory import give_back_freed
from heterophony.kernel.node import Node
from heterophony.kernel.work import Fit, Fitted, Mark

WORTHWHILE = 0.15  # seconds of work for which forking pays
ALIGNED = 64


class Workers:
    """An executor on several processes. Jobs are dealt by what they took before; short or new work is done here."""

    def __init__(self, inner: Eager, workers: int) -> None:
        self.inner, self.workers = inner, workers
        self.fork = multiprocessing.get_context("fork")
        self.forks = 0  # how often work was spread
        self.paces: dict[tuple[str, ...], float] = {}  # seconds a row, as seen last
        self.after = 0.0  # seconds that reactions go on for with an answer, as seen last: this process does less work

    def __call__(self, jobs: Sequence[Job]) -> Iterable[Any]:
        """Compute all jobs. Answers come in the order of the jobs, each as soon as it is there."""
        costs = self._costs(jobs)
        busy = sum(self._rows(job) > 0 for job in jobs)
        # Other processes would save all but the longest job.
        if costs is None or busy < 2 or sum(costs) - max(costs) < WORTHWHILE:
            return [self._timed(job)[0] for job in jobs]
        for job in jobs:
            if isinstance(job.work, Fit) and not job.node.shared:
                models_into(mmap.mmap(-1, room_for(job.node)), job.node)
        give_back_freed()
        self.forks += 1
        return self._spread(jobs, _bins(costs, min(self.workers, busy), self.after * len(jobs)))

    def _costs(self, jobs: Sequence[Job]) -> list[float] | None:
        """Return how many seconds each job will take; None where one is of a kind that was not seen yet."""
        costs = []
        for job in jobs:
            rows = self._rows(job)
            pace = self.paces.get(pace_of_node(job), self.paces.get(pace_of_networks(job)))
            if rows and pace is None:
                return None
            costs.append(rows * (pace or 0.0))
        return costs

    def _timed(self, job: Job) -> tuple[Any, float]:
        """Compute a job here. Return its answer and the seconds a row that it took."""
        began = time.perf_counter()
        answer = self.inner.one(job)
        pace = (time.perf_counter() - began) / max(self._rows(job), 1.0)
        self._learn(job, pace)
        return answer, pace

    def _learn(self, job: Job, pace: float) -> None:
        self.paces[pace_of_node(job)] = self.paces[pace_of_networks(job)] = pace

    def _rows(self, job: Job) -> float:
        """Return how many rows a job goes through."""
        if isinstance(job.work, Mark):
            if not job.evaluate:
                return 0.0
            return float(sum(len(data) for _, _, data in self.inner.tests(job.node.id)))
        return job.work.samples(job.node)

    def _spread(self, jobs: Sequence[Job], bins: list[list[int]]) -> Iterator[Any]:
        """Compute the first bin here and each other one in a child; yield the answers in order."""
        children: list[Child] = []
        try:
            for places in bins[1:]:
                children.append(Child(self, [(i, jobs[i]) for i in places]))
            whose = {i: child for child in children for i, _ in child.jobs}
            for child in children:
                child.listen()  # when all are forked: a thread would not be in the next one
            answers = {i: self._timed(jobs[i])[0] for i in bins[0]}
            spent = 0.0
            for i, job in enumerate(jobs):
                if i in whose:
                    value = whose[i].answer(i)
                    answers[i] = _taken(job, value)
                    self._learn(job, value["pace"])
                began = time.perf_counter()
                yield answers.pop(i)
                spent += time.perf_counter() - began
            self.after = spent / len(jobs)
        finally:
            for child in children:
                child.end()

    def work(self, pipe: Connection, jobs: Sequence[Job]) -> None:
        """Compute jobs in a child and send what came of each through the pipe."""
        try:
            leave_signals_to_parent()
            die_with_parent()
            for job in jobs:
                pipe.send_bytes(codec.pack(_given(job, *self._timed(job))))
        except WorkError as error:
            pipe.send_bytes(codec.pack({"error": str(error)}))
        except BrokenPipeError:
            pass  # nobody wants to know any more
        finally:
            pipe.close()
            os._exit(0)  # nothing of the parent's (locks, buffers, handlers) is this process's to clean up


class Child:
    """A forked process with some of the jobs, by their places."""

    def __init__(self, workers: Workers, jobs: Sequence[tuple[int, Job]]) -> None:
        self.jobs = list(jobs)
        self.thread: threading.Thread | None = None
        self.pipe, theirs = workers.fork.Pipe(duplex=False)
        self.process = workers.fork.Process(
            target=workers.work, args=(theirs, [job for _, job in self.jobs]), daemon=True
        )
        self.process.start()
        theirs.close()
        self.said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def listen(self) -> None:
        """Take what the child says off the pipe in a thread. A full pipe would make the child wait."""
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        with suppress(EOFError, OSError, MemoryError):
            for _ in self.jobs:
                self.said.put(self.pipe.recv_bytes())
        self.said.put(None)  # nothing more will be heard of it

    def answer(self, place: int) -> dict[str, Any]:
        """Return what the child says of a job. Jobs are asked for in the order in which they were given."""
        said = self.said.get()
        if said is None:
            self.process.join(1)  # one that has ended says how
            self.process.kill()
            self.process.join()
            names = ", ".join([job.node.id for at, job in self.jobs if at >= place][:5])
            raise WorkError(f"the process that worked for {names} died (exit {self.process.exitcode})")
        value: dict[str, Any] = codec.unpack(said)
        if "error" in value:
            raise WorkError(value["error"])
        return value

    def end(self) -> None:
        """End the child: it has said all, or nobody wants to know."""
        self.process.kill()
        self.process.join()
        if self.thread is not None:
            self.thread.join()
        self.pipe.close()


def leave_signals_to_parent() -> None:
    """Ignore signals to stop, in a child. The parent gets them too; it saves first and needs its children for that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def die_with_parent() -> None:
    """End this process when its parent ends, even by kill -9. A process of a pool would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    elif parent is not None:
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def pace_of_node(job: Job) -> tuple[str, ...]:
    """Return the key of a pace: such jobs of one node take about the same time a row."""
    names = job.work.names if isinstance(job.work, Fit) else (getattr(job.work, "model", ""),)
    return job.node.id, type(job.work).__name__, *names


def pace_of_networks(job: Job) -> tuple[str, ...]:
    """Return the key of a pace for nodes that were not met before: what others' jobs with such networks took."""
    _, *rest = pace_of_node(job)
    return ("", *rest, *(type(slot.module).__qualname__ for slot in job.node.slots.values()))


def _bins(costs: Sequence[float], count: int, more: float = 0.0) -> list[list[int]]:
    """Deal jobs to so many bins, the dearest first, each to the bin with the least to do.

    The first bin has so many seconds `more` to do anyway.
    """
    bins: list[list[int]] = [[] for _ in range(count)]
    load = [more, *[0.0] * (count - 1)]
    for place in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        least = load.index(min(load))
        bins[least].append(place)
        load[least] += costs[place]
    return [sorted(bins[0]), *(sorted(each) for each in bins[1:] if each)]


def _tensors(node: Node) -> list[torch.Tensor]:
    """Return all tensors of a node's models that hold something."""
    return [tensor for slot in node.slots.values() for tensor in slot.tensors().values() if tensor.numel()]


def room_for(node: Node) -> int:
    """Return the bytes that a node's models need in shared memory."""
    return max(1, sum(tensor.nbytes + ALIGNED for tensor in _tensors(node)))


def models_into(memory: mmap.mmap, node: Node) -> None:
    """Move a node's models into memory to which forked processes write for us. The models keep it alive."""
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
    """Tell whether a tensor's elements lie side by side, so that its strides can be kept."""
    return tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


def _given(job: Job, answer: Any, pace: float) -> dict[str, Any]:
    """Return what a child has to say of a job, as plain values."""
    state = {"epochs": job.node.epochs, "optimisers": job.node.optimisers}
    found: dict[str, Any] = {"rows": job.rows, "pace": pace, **state}
    return found | ({"fitted": asdict(answer)} if isinstance(answer, Fitted) else {"answer": answer})


def _taken(job: Job, value: dict[str, Any]) -> Any:
    """Write what a child has said into the job and its node; return the answer."""
    job.rows += value["rows"]
    job.node.epochs, job.node.optimisers = value["epochs"], value["optimisers"]
    return Fitted(**value["fitted"]) if "fitted" in value else value["answer"]
