"""The command that chooses options: tune."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from heterophony.cli.complaints import complaints
from heterophony.cli.options import DataFolder, Device, Json, compute_of, device_of, engine_of


def tune(
    method: Annotated[str, typer.Argument(help="A method; `heterophony methods` lists them.")],
    on: Annotated[str, typer.Option("--on", help="A setting with validation data: name, TOML file, module:callable.")],
    grid: Annotated[list[str], typer.Option(help="key=value,value,...: an option and what to try. Repeatable.")],
    budget: Annotated[int, typer.Option(min=1, help="Trials; of a larger grid so many are drawn. The same for all.")],
    seeds: Annotated[str, typer.Option(help="Every trial is run with each of these: 0,1,2.")] = "0",
    by: Annotated[str, typer.Option(help="What to choose by, on validation data: all, own or loss.")] = "all",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds; as the setting says if not given.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, for all trials. Repeatable.")] = None,
    to: Annotated[Path, typer.Option("--out", help="Where tuned.toml and tried.jsonl go.")] = Path("tuned"),
    device: Device = "auto",
    workers: Annotated[int, typer.Option(min=0, help="Processes on a CPU; 0: as many as it has cores.")] = 0,
    data: DataFolder = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Choose options of METHOD on a setting's validation data. Test data are not looked at.

    Example: heterophony tune fedavg --on rotated-mnist --grid lr=0.01,0.05 --grid epochs=1,2 --budget 4
    """
    with complaints():
        from heterophony.catalogue import registry
        from heterophony.runs.execution import execute
        from heterophony.settings import Setting
        from heterophony.studies import tuned, tuning

        by = {"all": "acc", "wdp": "own"}.get(by, by)  # as papers call them
        numbers = _numbers(seeds)
        wanted = tuning.grid(grid, method)

        def tell(trial: tuning.Trial) -> None:
            print(f"{_said(trial.options)}: {_by(trial)} {_figure(trial)}", file=sys.stderr, flush=True)

        trials = tuning.tune(
            method,
            Setting.load(on),
            wanted,
            budget=budget,
            seeds=numbers,
            by=by,
            rounds=rounds,
            changes=dict(registry.parse(text) for text in set_ or []),
            root=data,
            compute=compute_of(device_of(device)),
            tried=to / "tried.jsonl",
            run=lambda federation, count: execute(federation, count, engine=engine_of("local", workers)),
            tell=tell,
        )
        chosen = tuned.write(to / "tuned.toml", trials, budget)
        if at_edge := tuning.edges(trials, chosen):
            print(f"{'; '.join(at_edge)}: a wider grid may hold a better one", file=sys.stderr)
    if as_json:
        print(json.dumps({"options": chosen.options, "value": chosen.value, "by": by, "tried": len(trials)}))
    else:
        print(f"best of {len(trials)}: {_said(chosen.options)}, validation {_by(chosen)} {_figure(chosen)}")
        same = [f"--rounds {rounds}"] if rounds else []
        same += [f"--set {shlex.quote(text)}" for text in set_ or []]
        print(" ".join([f"heterophony run {method} --on {on}", *same, f"--tuned {to / 'tuned.toml'}"]))


def _numbers(seeds: str) -> list[int]:
    """Read seeds by commas."""
    from heterophony.settings import SettingError

    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError:
        raise SettingError(f"--seeds {seeds}: write whole numbers, as in 0,1,2") from None


def _by(trial: Any) -> str:
    """Return by what a trial is judged, as a person reads it."""
    return str(trial.score.label) + (" on the own domain" if trial.by == "own" else "")


def _figure(trial: Any) -> str:
    if trial.value is None:
        return "diverged" if trial.diverged else "no value: nobody was evaluated in the last round"
    return f"{100 * trial.value:.2f} %" if trial.score.percent else f"{trial.value:.4f}"


def _said(options: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in options.items())
