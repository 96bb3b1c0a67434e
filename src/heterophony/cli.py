"""The command line. Results on stdout, progress and errors on stderr; exit 2: bad input, exit 1: our failure."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as Grid

from heterophony import cli_results as results
from heterophony import listing, progress, tune_command
from heterophony.complaints import complaints
from heterophony.deploy.commands import app as deploy
from heterophony.progress import saving_on_interrupt

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine
    from heterophony.federation import Federation
    from heterophony.record.result import Result

app = typer.Typer(
    name="heterophony",
    help="Federated learning between participants that differ in model, data, task, hardware and place.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out, err = Console(), Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.")]
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
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster: auto, or host:port (--engine ray).")]
Track = Annotated[str, typer.Option(help="Who is told in the run folder: tensorboard, mlflow, wandb (by commas), none; "
                                    "auto is tensorboard if it is installed.")]  # fmt: skip
DataFolder = Annotated[
    Path | None, typer.Option("--data", help="Folder with data sets (default: $HETEROPHONY_DATA, then a user cache).")
]


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from heterophony import __version__

        print(f"heterophony {__version__}")
        raise typer.Exit


# -- commands ------------------------------------------------------------------------------------------------
@app.command()
def run(
    method: Annotated[str, typer.Argument(help="A method (`heterophony methods` lists them), or module:callable.")],
    on: Annotated[str, typer.Option("--on", help="A setting: a shipped name or a TOML file.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds; as the setting says if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value: an option of the method (lr=0.01) or a "
                                                   "part of the setting (data.leaky=true). Repeatable.")] = None,
    tuned: Annotated[Path | None, typer.Option(help="Options that `heterophony tune` found; --set wins.")] = None,
    engine: EngineName = "local",
    address: Address = None,
    device: results.Device = "auto",
    executor: results.Executor = "auto",
    precision: results.Precision = "fp32",
    deterministic: results.Deterministic = True,
    workers: CpuWorkers = 0,
    data: DataFolder = None,
    to: Annotated[Path | None, typer.Option("--out", help="Run folder, which can be resumed.")] = None,
    track: Track = "auto",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run METHOD on a setting.

    Example: heterophony run fml --on rotated-mnist-mixed --seed 1 --out runs/fml
    """
    from heterophony import registry
    from heterophony.record import trackers
    from heterophony.record.run import Run
    from heterophony.settings import Setting, assemble

    with complaints(to):
        place = device if (engine, device) == ("ray", "cuda") else _device(device)  # the GPUs may be elsewhere
        _engine(engine, address=address)
        if engine == "flower" and to is not None:  # before there is a folder
            raise ValueError("--engine flower rehearses, without --out; for a run that lasts: heterophony deploy init")
        told = trackers.chosen(track)
        if told and track != "auto" and to is None:
            raise ValueError(f"--track {track} needs a run folder: --out")
        setting = Setting.load(on)
        changes = dict(registry.parse(text) for text in set_ or [])
        if tuned is not None:
            changes = _tuned(tuned, setting.name, method, changes)
        compute = {"device": place, "executor": executor, "precision": precision, "deterministic": deterministic}
        federation = assemble(method, setting, seed=seed, changes=changes, root=data, compute=compute)
        wanted = rounds or setting.plan(method)[0]
        if to is None:
            result = _execute(federation, engine, wanted, workers=workers, address=address)
            _finish(federation.identity(), result, None, as_json)
            return
        spec = federation.identity()
        known = (to / "spec.json").exists()
        with Run.open(to, spec) if known else Run.create(to, spec, wanted) as record:
            wanted = wanted if rounds else max(wanted, record.goal)  # as far as it was to go
            _finish(spec, _execute(federation, engine, wanted, record, workers, told, address), to, as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Go on to this many rounds.")] = None,
    engine: EngineName = "local",
    address: Address = None,
    workers: CpuWorkers = 0,
    data: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Continue a run that was stopped, or extend a finished one with --rounds."""
    from heterophony.record.run import Run, RunError
    from heterophony.settings import reassemble

    with complaints(folder):
        _engine(engine, address=address)
        spec = Run.spec(folder)
        if not spec.get("recipe"):
            raise RunError(
                f"{folder} was started from Python: resume it there, with Federation.resume({str(folder)!r})"
            )
        federation = reassemble(spec["recipe"], data)
        with Run.open(folder, federation.identity()) as record:
            result = _execute(federation, engine, rounds or record.goal, record, workers, address=address)
            _finish(spec, result, folder, as_json)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    against: Annotated[Path | None, typer.Option(help="Another run: who gains by this one, and who loses.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a run has come to, finished or not."""
    from heterophony import show as view

    with complaints():
        found = view.load(folder)
        _print(found if against is None else {**found, "clients": view.against(folder, against)}, as_json)


@app.command()
def ledger(folder: Annotated[Path, typer.Argument(help="A run folder.")], as_json: Json = False) -> None:
    """Show what left each node of a run: messages and bytes by kind and edge, and what went wrong."""
    from heterophony import show as view

    with complaints():
        edges, incidents = view.ledger(folder)
    if as_json:
        print(json.dumps({"edges": edges, "incidents": incidents}))
        return
    grid = Grid("from", "to", "kind", "messages", "bytes", "status")
    for edge in edges:
        grid.add_row(
            *(str(edge[key]) for key in ("from", "to", "kind", "messages")), view.size(edge["bytes"]), edge["status"]
        )
    out.print(grid)
    for incident in incidents:
        out.print(
            f"{incident['time']:g} s  {incident['node']}: {incident['incident']} {incident['detail']}", highlight=False
        )


@app.command()
def models(as_json: Json = False) -> None:
    """List the networks. Any module:callable is one too, of a module in this folder or on PYTHONPATH: it is called with
    in_channels, size (of an image's side) and classes, and returns a torch.nn.Module."""
    from heterophony.models import names

    _list([{"name": name, "summary": summary} for name, summary in names()], as_json, ("name", "summary"))


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="One method, or module:callable, to see its options.")] = None,
    as_json: Json = False,
) -> None:
    """List the methods; or of one what leaves a node, where it differs from its paper, and its options."""
    from heterophony import registry
    from heterophony.options import described

    if name is not None:
        with complaints():
            entry = registry.lookup(name)
            rows = [vars(option) for option in described(entry)]
        if not as_json:
            print(f"{entry.about}\n")
        _list(rows, as_json, ("name", "default", "note"))
        return
    with complaints():
        known, broken = registry.sound_methods()
        found = [
            {
                "name": name,
                "summary": entry.summary,
                "sends": [kind.name for kind in entry.sends()],
                "options": {key: default for key, (_, default) in entry.options().items()},
            }
            for name, entry in known.items()
        ]
    _list(found, as_json, ("name", "summary", "sends"), spare=("sends",))
    for name, reason in broken.items():
        print(f"not listed: {name} of another package: {reason}", file=sys.stderr)
    if not as_json:
        print("heterophony methods NAME says more of one")


@app.command()
def settings(
    name: Annotated[str | None, typer.Argument(help="One setting, or a TOML file, to see what it says.")] = None,
    as_json: Json = False,
) -> None:
    """List the settings that come with the package; or show one, as a file to begin one's own with."""
    from heterophony.data.sources import own
    from heterophony.data.sources.catalogue import known
    from heterophony.settings import Setting, shipped
    from heterophony.settings.setting import text

    with complaints():
        here = {listing.entry.name for listing in known() if listing.found}
        found = []
        for each in shipped() if name is None else [name]:
            setting = Setting.load(each)
            found.append(
                {
                    "name": setting.name,
                    "summary": setting.summary,
                    "rounds": setting.rounds,
                    "networks": sorted(set(setting.models.names)),
                    "data": setting.sources,
                    "missing": [s for s in setting.sources if s not in here and not own.entry(s)],
                }
            )
        toml = "" if name is None else text(name).strip()
    if name is None:
        found.sort(key=lambda setting: (len(setting["missing"]), setting["name"]))  # type: ignore[arg-type]
        _list(found, as_json, ("name", "summary", "rounds", "missing"), spare=("rounds",))
        if not as_json:
            print("heterophony settings NAME shows one as a file")
    elif as_json:
        print(json.dumps({**found[0], "toml": toml}))
    else:
        print(toml)
        if missing := found[0]["missing"]:
            print(f"missing data: {', '.join(missing)}", file=sys.stderr)  # type: ignore[arg-type]


@app.command("data")
def data_sets(
    data: DataFolder = None,
    fetch: Annotated[
        list[str] | None, typer.Option(help="Download this set first, from its official source. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List every known data set: whether it was found, where, and how large it is."""
    from heterophony.data.download import download
    from heterophony.data.sources import own
    from heterophony.data.sources.catalogue import known

    with complaints():
        for name in fetch or []:
            for path in download(name, data):
                print(f"fetched {path}", file=sys.stderr)
        found = [
            {
                "name": listing.entry.name,
                "summary": listing.entry.summary,
                "found": listing.found,
                "fetchable": listing.entry.fetchable,
                "where": None if listing.where is None else str(listing.where),
                "train": listing.train,
                "test": listing.test,
                "partial": listing.partial,
                "problem": listing.problem or None,
            }
            for listing in known(data)
        ]
    rows, members = (found, {}) if as_json else listing.families(found)
    _list(rows, as_json, ("name", "summary", "found", "train", "test"), spare=())
    if not as_json:
        from heterophony.data.root import folder

        for name, each in members.items():
            out.print(f"{name}: {', '.join(each)}", highlight=False)
        print(f"looked in {folder(data)}")
        absent = [str(row["name"]) for row in found if row["fetchable"] and not row["found"]]
        if absent:
            out.print(f"heterophony data --fetch NAME downloads {', '.join(absent)}", highlight=False)
        print(f"your own: {own.FORMS}")
        for row in found:
            if row["problem"]:
                print(row["problem"])


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    node: Annotated[str, typer.Option(help="Whose model.")],
    to: Annotated[Path, typer.Option(help="File to write (.safetensors).")],
    model: Annotated[str | None, typer.Option(help="Which of its models; the first if not given.")] = None,
) -> None:
    """Write a model, as it was after the last round, to a file, with what is needed to load it."""
    from heterophony import exported

    with complaints():
        exported.save(folder, node, to, model)
    print(f"wrote {to}", file=sys.stderr)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A file that `heterophony export` wrote.")],
    images: Annotated[Path, typer.Argument(help="A .npz with images `x` (uint8, NHWC or NHW), or an image file.")],
    as_json: Json = False,
) -> None:
    """Classify images with an exported model."""
    from heterophony import exported

    with complaints():
        found = exported.predict(model, images)
    if as_json:
        print(json.dumps(found))
    else:
        for place, (name, sure) in enumerate(zip(found["names"], found["confidence"], strict=True)):
            out.print(f"{place}: {name} ({100 * sure:.1f} %)", markup=False)


@app.command()
def demo(to: Annotated[Path, typer.Option("--out", help="Where to put the runs.")] = Path("runs/demo")) -> None:
    """Watch four networks learn four rotations of real digits, alone and from each other, for about two minutes."""
    from heterophony import demonstration

    with complaints():
        demonstration.play(to, out)


app.add_typer(deploy, name="deploy")
app.command()(tune_command.tune)


def _tuned(path: Path, setting: str, method: str, changes: dict[str, Any]) -> dict[str, Any]:
    """What was found, and the user's own changes before it, by whatever name they call an option."""
    from heterophony import registry, tuning

    entry = registry.lookup(method)
    found = tuning.options(path, setting, method)
    own = {entry.full_name(key) for key in changes if any(name == key or name.endswith(f".{key}") for name in found)}
    return {key: value for key, value in found.items() if key not in own} | changes


# -- running, with progress ------------------------------------------------------------------------------------
def _execute(
    federation: Federation,
    engine: str,
    rounds: int,
    record: Any = None,
    workers: int = 0,
    told: list[str] | None = None,
    address: str | None = None,
) -> Result:
    if federation.device == "cpu" and federation.threads == 1 and engine == "local":
        federation = replace(federation, workers=workers or _cores())
    from heterophony import observers
    from heterophony.record import trackers

    told = trackers.chosen("auto") if told is None else told
    folder = None if record is None else record.folder
    if record is not None:
        observers.begin(federation, record.folder)
    with (
        progress.shown(federation, rounds) as shown,
        trackers.following(told, folder, federation.identity(), shown) as tick,
    ):
        made = _engine(engine, workers, address)(federation, record=record, progress=tick)
        with saving_on_interrupt(made):
            result = made.run(rounds)
    if record is not None:
        observers.end(federation, result, record.folder)
    return result


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _engine(name: str, workers: int = 0, address: str | None = None) -> Callable[..., Engine]:
    from heterophony import engines

    places: dict[str, Callable[..., Engine]] = {
        "local": engines.local,
        "process": engines.process,
        "ray": partial(engines.ray, workers=workers or None, address=address),
        "flower": engines.flower,
    }
    if name not in places:
        raise ValueError(f"there is no engine {name!r}; it is {', '.join(places)}")
    if address is not None and name != "ray":
        raise ValueError(f"--address {address} is for --engine ray")
    if name == "ray":
        from heterophony.engines import ray_pool

        ray_pool.ray()  # says at once if it is missing
    return places[name]


def _finish(spec: dict[str, Any], result: Result, folder: Path | None, as_json: bool) -> None:
    from heterophony import show as view

    _print(view.finish(spec, result, folder), as_json)


def _print(summary: dict[str, Any], as_json: bool) -> None:
    from heterophony import show as view

    if as_json:
        print(json.dumps(summary))
        return
    out.print(view.table(summary))
    for line in view.lines(summary):
        print(line)


def _list(
    rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...], spare: tuple[str, ...] | None = None
) -> None:
    """A table that wraps; or, with `spare`, a line each, without these columns where there is no room for them."""
    if as_json:
        print(json.dumps(rows))
        return
    if spare is not None:
        listing.show(rows, columns, spare, _cell)
        return
    grid = Grid(*columns)
    for row in rows:
        grid.add_row(*(_cell(row[column]) for column in columns))
    out.print(grid)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return (
        {True: "yes", False: "no", None: "-"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
    )


def _device(device: str) -> str:
    """Where models are trained; `auto` is a GPU if torch finds one."""
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


results.register(app)  # compare, reproduce, report


def main() -> None:
    # What the library has to say (which way of computing it chose, who runs one at a time) goes beside the progress.
    voice = logging.StreamHandler()
    voice.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("heterophony").addHandler(voice)
    logging.getLogger("heterophony").setLevel(logging.INFO)
    if not {"", os.getcwd()} & set(sys.path):  # where a user's own networks are (module:callable), as for `python -m`
        sys.path.insert(0, os.getcwd())
    command = typer.main.get_command(app)
    _without_variables(command)
    command()


def _without_variables(command: Any) -> None:
    """No option is read from the environment; some versions of click say "(env var: 'None')" in their errors."""
    for option in command.params:
        option.show_envvar = False
    for each in getattr(command, "commands", {}).values():
        _without_variables(each)
