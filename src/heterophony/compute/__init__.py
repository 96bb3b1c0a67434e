"""How pending work is computed: one piece after the other, or all of it together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterophony.compute.batched import Batched
from heterophony.compute.choice import Choices, machine_file
from heterophony.compute.eager import Eager, Job
from heterophony.compute.memory import keep_freed
from heterophony.compute.workers import Workers

if TYPE_CHECKING:
    from heterophony.federation import Federation

# Read when CUDA starts, which asking whether there is a GPU may do already. Under NVIDIA's multi-process service a
# client has so few queues by itself that no two captured fits run at once.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


Executor = Callable[[Sequence[Job]], Iterable[Any]]


def executor_of(federation: Federation, choices: Path | None = None) -> Executor:
    """Return what computes a federation's work; by default all together on a GPU, and one fit at a time on a CPU.

    `choices` is the file in which ways that were timed are remembered.
    """
    compute = federation.compute
    on_cpu = compute.device == "cpu"
    if on_cpu:
        keep_freed()
    if compute.executor == "eager" or (compute.executor == "auto" and on_cpu):
        eager = Eager(federation.test_sets, compute.precision)
        several = compute.workers > 1 and on_cpu and compute.threads == 1
        return Workers(eager, compute.workers) if several else eager
    remembered = Choices(choices, machine_file() if compute.executor == "auto" else None)
    return Batched(federation.test_sets, compute.precision, compute.executor, remembered)
