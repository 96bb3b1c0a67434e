"""The commands that run one federation: run, resume, demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heterophony.cli import options, terminal
from heterophony.cli.complaints import complaints
from heterophony.cli.looking import tell

if TYPE_CHECKING:
    pass


def run(
    method: Annotated[str, typer.Argument(help="A method (`heterophony methods` lists them), or module:callable.")],
    on: Annotated[str, typer.Option("--on", help="A setting: a shipped name, a TOML file or module:callable.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds; as the setting says if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    set_: options.Set = None,
    tuned: Annotated[Path | None, typer.Option(help="Options that `heterophony tune` found; --set wins.")] = None,
    engine: options.EngineName = "local",
    address: options.Address = None,
    device: options.Device = "auto",
    executor: options.ExecutorOption = "auto",
    precision: options.Precision = "fp32",
    deterministic: options.Deterministic = True,
    workers: options.CpuWorkers = 0,
    data: options.DataFolder = None,
    to: Annotated[Path | None, typer.Option("--out", help="Run folder, which can be resumed.")] = None,
    track: options.Track = None,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Run METHOD on a setting.

    Example: heterophony run fml --on rotated-mnist-mixed --seed 1 --out runs/fml
    """
    from heterophony.catalogue import registry
    from heterophony.runs.execution import execute, execute_in
    from heterophony.runs.summary import Summary
    from heterophony.settings import Setting, assemble

    with complaints(to):
        # Ray's GPUs may be on other machines.
        place = device if (engine, device) == ("ray", "cuda") else options.device_of(device)
        chosen = options.engine_of(engine, workers, address)
        if engine == "flower" and to is not None:  # before there is a folder
            raise ValueError("--engine flower rehearses, without --out; for a run that lasts: heterophony deploy init")
        _check_tracked(track, to)
        setting = Setting.load(on)
        changes = dict(registry.parse(text) for text in set_ or [])
        if tuned is not None:
            changes = options.tuned_changes(tuned, setting.name, method, changes)
        compute = options.compute_of(place, executor, precision, deterministic)
        federation = assemble(method, setting, seed=seed, changes=changes, root=data, compute=compute)
        usual = setting.plan(method)[0]
        if to is None:
            summary = Summary.of(federation.identity(), execute(federation, rounds or usual, engine=chosen))
        else:
            summary = execute_in(to, federation, rounds, usual=usual, track=track, engine=chosen).summary
        tell(summary, as_json, kept=to is not None)


def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Go on to this many rounds.")] = None,
    engine: options.EngineName = "local",
    address: options.Address = None,
    workers: options.CpuWorkers = 0,
    data: options.DataFolder = None,
    trust: options.Trust = False,
    track: options.Track = None,
    as_json: options.Json = False,
) -> None:
    """Continue a run that was stopped, or extend a finished one with --rounds."""
    from heterophony.runs.execution import execute_in
    from heterophony.runs.run import Run, RunError
    from heterophony.settings import reassemble

    with complaints(folder):
        chosen = options.engine_of(engine, workers, address)
        spec = Run.resumable(folder)
        if not spec.get("recipe"):
            raise RunError(
                f"{folder} was started from Python: resume it there, with Federation.resume({str(folder)!r})"
            )
        federation = reassemble(spec["recipe"], data, trust=trust, where=str(folder))
        ended = execute_in(folder, federation, rounds, new=False, track=track, engine=chosen)
        tell(ended.summary, as_json, kept=True)


def demo(
    to: Annotated[Path | None, typer.Option("--out", help="Where to put the runs; runs/demo if not said.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter runs: half a minute.")] = False,
) -> None:
    """Watch four networks learn four rotations of real digits, alone and from each other, for about two minutes."""
    from heterophony.cli import demonstration

    with complaints():
        folder = to or Path("runs/demo-quick" if quick else "runs/demo")
        demonstration.play(folder, terminal.console(), quick=quick)


def _check_tracked(track: str | None, to: Path | None) -> None:
    """Raise where somebody is to be told of a run that has no folder, or cannot be told."""
    from heterophony.runs import trackers

    if to is None and track not in (None, "auto") and trackers.chosen(track):
        raise ValueError(f"--track {track} needs a run folder: --out")
