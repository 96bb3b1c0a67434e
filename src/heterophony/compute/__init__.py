"""How pending work is computed: one after the other, or a whole cohort together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterophony.compute.choice import Choices, machine_file
from heterophony.compute.cohort import Cohort
from heterophony.compute.eager import Eager, Job
from heterophony.compute.memory import keep_freed
from heterophony.compute.workers import Workers

if TYPE_CHECKING:
    from heterophony.federation import Federation

# Read when CUDA starts, which asking whether there is a GPU may do already. Under NVIDIA's multi-process service a
# client has so few queues by itself that no two lanes run at once.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def executor(federation: Federation, choices: Path | None = None) -> Callable[[Sequence[Job]], Iterable[Any]]:
    """What the federation asks for; by default whole cohorts on a GPU, and one after the other on a CPU."""
    chosen = federation.executor
    if federation.device == "cpu":
        keep_freed()
    if chosen == "eager" or (chosen == "auto" and federation.device == "cpu"):
        eager = Eager(federation.test_sets, federation.precision)
        several = federation.workers > 1 and federation.device == "cpu" and federation.threads == 1
        return Workers(eager, federation.workers) if several else eager
    remembered = Choices(choices, machine_file() if chosen == "auto" else None)
    return Cohort(federation.test_sets, federation.precision, chosen, remembered)
