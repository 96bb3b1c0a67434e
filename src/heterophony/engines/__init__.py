"""Where reactions run. Every engine drives the same clock, triggers and mailboxes; they differ in their host."""

from typing import Any

from heterophony.compute import Executor
from heterophony.compute.choice import FILE
from heterophony.engines.engine import Engine, Stalled
from heterophony.engines.local_host import LocalHost
from heterophony.engines.network import Network
from heterophony.engines.process_host import ProcessHost
from heterophony.engines.record import Record
from heterophony.engines.refusals import Unheard
from heterophony.federation import Federation

__all__ = ["Engine", "Network", "Stalled", "Unheard", "local", "process", "ray"]


def local(federation: Federation, *, executor: Executor | None = None, **options: Any) -> Engine:
    """Make the default engine: one process, nothing to start."""
    record: Record | None = options.get("record")
    host = LocalHost(federation, executor, record.folder / FILE if record is not None else None)
    return Engine(federation, host, **options)


def process(federation: Federation, **options: Any) -> Engine:
    """Make an engine whose every reaction runs in a process of its own."""
    return Engine(federation, ProcessHost(federation), **options)


def ray(federation: Federation, *, workers: int | None = None, address: str | None = None, **options: Any) -> Engine:
    """Make an engine whose reactions run in a pool of Ray workers: by default one a core, or a GPU, of the cluster.

    `address` is that of a running cluster ("auto": the one of this machine); without it, one is started here.
    """
    from heterophony.engines.ray_engine import RayEngine
    from heterophony.engines.ray_host import RayHost

    return RayEngine(federation, RayHost(federation, workers, address), **options)
