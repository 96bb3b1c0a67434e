"""Options that several commands have, and what their values mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine
    from heterophony.federation import Federation
    from heterophony.kernel.compute import Compute

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")]
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder with data sets (default: $HETEROPHONY_DATA, then a user cache).")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="key=value: an option of the method (lr=0.01) or a part of the setting (data.leaky=true). Repeatable.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
ExecutorOption = Annotated[
    str,
    typer.Option(
        help="How pending work is computed: auto (what was timed as the fastest), eager, branches or stacked."
    ),
]
Precision = Annotated[str, typer.Option(help="fp32, tf32 or bf16.")]
Deterministic = Annotated[bool, typer.Option(help="On a GPU: only kernels that repeat to the bit.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, each with one core; 1: one run, with all cores.")]
CpuWorkers = Annotated[
    int, typer.Option("--workers", min=0, help="Processes on a CPU, or Ray workers; 0: one a core (a GPU).")
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where reactions run: local, process (each in its own), ray, or flower (a "
        "rehearsal of `deploy`, two processes a participant).",
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Import and run modules that are not ours and that the file or folder names."),
]
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster: auto, or host:port (--engine ray).")]
Track = Annotated[
    str | None,
    typer.Option(
        help="Who is told in the run folder: tensorboard, mlflow, wandb (by commas), none, or auto: tensorboard if it "
        "is installed. If not given: what the run began with; auto for a new run."
    ),
]


def device_of(device: str) -> str:
    """Return where models are trained; `auto` is a GPU if torch finds one."""
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"there is no device {device!r}; it is auto, cpu or cuda")
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise ValueError("--device cuda: torch finds no CUDA device here; use --device cpu")
    return "cpu"


def compute_of(device: str, executor: str = "auto", precision: str = "fp32", deterministic: bool = True) -> Compute:
    """Return how work is computed, from the values of options; a value that does not exist is refused."""
    from heterophony.kernel.compute import Compute

    return Compute(device, executor, precision, deterministic)  # type: ignore[arg-type]


def engine_of(name: str, workers: int = 0, address: str | None = None) -> Callable[..., Engine]:
    """Return what makes the engine of this name; a name or an address that does not go with it is refused."""
    from heterophony import engines

    def alone(federation: Federation, **options: Any) -> Engine:
        """Make the local engine. On a CPU it uses all cores, unless `workers` says how many."""
        from heterophony.runs.execution import cores

        compute = federation.compute
        if compute.device == "cpu" and compute.threads == 1:
            federation = federation.computed(workers=workers or cores())
        return engines.local(federation, **options)

    def rehearsed(federation: Federation, **options: Any) -> Engine:
        from heterophony.deploy.rehearsal import Rehearsal

        return Rehearsal(federation, **options)

    places: dict[str, Callable[..., Engine]] = {
        "local": alone,
        "process": engines.process,
        "ray": partial(engines.ray, workers=workers or None, address=address),
        "flower": rehearsed,
    }
    if name not in places:
        raise ValueError(f"there is no engine {name!r}; it is {', '.join(places)}")
    if address is not None and name != "ray":
        raise ValueError(f"--address {address} is for --engine ray")
    if name == "ray":
        from heterophony.engines import ray_pool

        ray_pool.ray()  # says at once if it is missing
    return places[name]


def tuned_changes(path: Path, setting: str, method: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return what was found, with the user's own changes in place of it, by whatever name they call an option."""
    from heterophony.catalogue import registry
    from heterophony.studies import tuned

    entry = registry.lookup(method)
    found = tuned.options(path, setting, method)
    own = {entry.full_name(key) for key in changes if any(name == key or name.endswith(f".{key}") for name in found)}
    return {key: value for key, value in found.items() if key not in own} | changes
