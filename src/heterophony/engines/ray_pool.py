"""Worker processes on a Ray cluster: started, found dead, replaced."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from heterophony.compute.workers import die_with_parent
from heterophony.engines.ray_worker import Worker
from heterophony.engines.shipping import Shipment, pack
from heterophony.federation import Federation

log = logging.getLogger(__name__)
PATIENCE = 60.0  # seconds that starting a worker may take
HINT = "the engine 'ray' needs Ray: pip install 'heterophony[ray]'"


class RayError(ValueError):
    """The cluster cannot do what is asked of it."""


def ray() -> Any:
    """Return the module, imported when it is first needed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do by default, and warns of
    try:
        import ray
    except ImportError:
        raise RayError(HINT) from None
    return ray


@dataclass
class PoolWorker:
    """A worker: its handle, its process, and whether its object store is the driver's too."""

    actor: Any
    started: Any  # a reference that is ready when the process is
    process: int = 0
    near: bool = True


def connect(address: str | None, workers: int | None) -> None:
    """Join a cluster; without an address, the one that this process is in, or a new one on this machine."""
    if address is not None and address.startswith("ray://"):
        raise RayError(f"{address}: the driver must run on a machine of the cluster; use --address auto there")
    if ray().is_initialized():
        return
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address is not None:
            ray().init(address, **quiet)
        else:
            ray().init("local", num_cpus=workers, include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RayError(f"no Ray cluster at {address or 'this machine'}: {str(error).splitlines()[0]}") from None


# Workers that no run needs, by Ray session and what they have: the next run of this process saves their start.
_idle: dict[tuple[str, str], list[Any]] = {}


class Pool:
    """One worker a core, or a GPU. Those that cannot be started yet may join later; one at least must be there."""

    def __init__(self, federation: Federation, workers: int | None) -> None:
        unit = "GPU" if federation.compute.device.startswith("cuda") else "CPU"
        there = int(ray().cluster_resources().get(unit, 0))
        if not there:
            raise RayError(f"the cluster has no {unit}")
        number = min(workers or there, len(federation.topology.roles))
        if number > there:
            raise RayError(f"{number} workers need a {unit} each; the cluster has {there}")
        needs = {"num_cpus": 1, "num_gpus": 1 if unit == "GPU" else 0}
        self.cls = ray().remote(max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **needs)(_Actor)
        self.shipment = ray().put(pack(federation))  # once for each machine, however many workers it has
        context = ray().get_runtime_context()
        self.here = context.get_node_id()
        self.idle = _idle.setdefault((context.get_worker_id(), unit), [])
        self.members: dict[int, PoolWorker] = {}
        self.coming: dict[int, PoolWorker] = {}
        self.born = 0
        for _ in range(number):
            self._start()
        ray().wait([member.started for member in self.coming.values()], num_returns=number, timeout=PATIENCE)

    def _start(self) -> None:
        actor = self.idle.pop() if self.idle else self.cls.remote()
        self.coming[self.born] = PoolWorker(actor, actor.start.remote(self.shipment))
        self.born += 1

    def ready(self) -> dict[int, PoolWorker]:
        """Return the workers that can work, at least one."""
        until = time.monotonic() + PATIENCE
        self._welcome(0.0)
        while not self.members:
            if time.monotonic() > until:
                raise RayError(f"no worker could be started within {PATIENCE:g} s: is the cluster's capacity in use?")
            self._welcome(1.0)
        return self.members

    def _welcome(self, patience: float) -> None:
        """Take in those that have started; one that died on the way is tried again."""
        refs = {member.started: number for number, member in self.coming.items()}
        for ref in ray().wait(list(refs), timeout=patience)[0] if refs else ():
            number = refs[ref]
            member = self.coming.pop(number)
            try:
                member.process, place = ray().get(ref)
            except ray().exceptions.RayTaskError as error:
                raise RayError(f"a worker cannot start: {str(error).strip().splitlines()[-1]}") from error
            except ray().exceptions.RayError as error:
                log.warning("a worker died while it started: %s", str(error).splitlines()[0])
                self._start()
            else:
                member.near = place == self.here
                self.members[number] = member

    def replace(self, number: int) -> None:
        """Replace a worker that did not answer. Whatever it may still do is of no interest."""
        member = self.members.pop(number)
        ray().kill(member.actor)
        self._start()

    def close(self, busy: Collection[int]) -> None:
        """Let workers wait for the next run; end those that a run has left in the middle of something."""
        for number in busy:
            ray().kill(self.members.pop(number).actor)
        for member in [*self.coming.values(), *self.members.values()]:
            member.actor.rest.remote()
        # Taken from the end: those that are surely there first.
        self.idle[:0] = [member.actor for member in self.coming.values()]
        self.idle += [member.actor for member in self.members.values()]


class _Actor:
    """A worker's process as Ray sees it. What goes wrong with a federation there is an error, not a death."""

    worker: Worker | None = None

    def start(self, shipment: Shipment) -> tuple[int, str]:
        die_with_parent()  # the machine's raylet; without it, a process may compute on for a minute for nobody
        self.rest()
        self.worker = Worker(shipment)
        return os.getpid(), ray().get_runtime_context().get_node_id()

    def rest(self) -> None:
        """Let go of a federation, and of the memory that it shares with others."""
        if self.worker is not None:
            self.worker.close()
        self.worker = None

    def ask(self, what: str, *arguments: Any) -> Any:
        return getattr(self.worker, what)(*arguments)

    def work(self, *arguments: Any) -> Iterator[Any]:
        assert self.worker is not None
        yield from self.worker.work(*arguments)
