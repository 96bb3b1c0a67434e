"""The commands that make results of many runs: compare, reproduce, report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterophony.cli import listing, queued, terminal
from heterophony.cli.complaints import complaints
from heterophony.cli.options import (
    DataFolder,
    Deterministic,
    Device,
    ExecutorOption,
    Jobs,
    Json,
    Precision,
    compute_of,
    device_of,
    tuned_changes,
)

if TYPE_CHECKING:
    from heterophony.kernel.compute import Compute
    from heterophony.studies.campaign import PlannedRun
    from heterophony.studies.comparison import Comparison
    from heterophony.studies.experiments import Experiment
    from heterophony.studies.experiments.planning import Version
    from heterophony.studies.experiments.reproduction import Reproduction


def compare(
    methods: Annotated[list[str], typer.Argument(help="Methods (see `heterophony methods`), or module:callable.")],
    on: Annotated[str, typer.Option("--on", help="A setting: a shipped name, a TOML file or module:callable.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many: 0, 1, ...")] = 3,
    rounds: Annotated[int | None, typer.Option(min=1, help="For all; as the setting says if not given.")] = None,
    options: Annotated[Path | None, typer.Option(help="A TOML file with a table of options a method.")] = None,
    tuned: Annotated[Path | None, typer.Option(help="Options that `heterophony tune` found, for all of them.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value, for all of them. Repeatable.")] = None,
    metric: Annotated[str, typer.Option(help="What decides which is best: all, own, others, worst, ...")] = "all",
    device: Device = "auto",
    executor: ExecutorOption = "auto",
    precision: Precision = "fp32",
    deterministic: Deterministic = True,
    jobs: Jobs = 1,
    data: DataFolder = None,
    to: Annotated[Path | None, typer.Option("--out", help="Run folders: OUT/METHOD/seed-N.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare METHODS on one setting: the same data, partition and seeds for all.

    Runs that are finished in OUT (runs/compare/SETTING unless given) are reused. Others go on where they stopped.
    Figures in JSON are fractions, by the names that papers have. `names` says which is which.

    Example: heterophony compare solo fedmd fml fedh2l --on rotated-mnist-mixed --seeds 3
    """
    with complaints():
        from heterophony.catalogue import registry
        from heterophony.settings import Setting, task_of
        from heterophony.studies import campaign, comparison

        setting = Setting.load(on)
        folder = to or Path("runs/compare") / setting.name
        given = comparison.read_options(options) if options is not None else {}
        changes = dict(registry.parse(text) for text in set_ or [])
        if tuned is not None:  # what was found; a file of options wins, and --set over both
            given = {name: tuned_changes(tuned, setting.name, name, given.get(name, {})) for name in methods}
        metric = comparison.metric_of(metric, task_of(setting))
        wanted = comparison.planned_runs(
            methods,
            setting,
            seeds=range(seeds),
            folder=folder,
            rounds=rounds,
            options=given,
            changes=changes,
            compute=compute_of(device_of(device), executor, precision, deterministic),
            data=data,
        )
        if rounds is not None and (cut := comparison.replanned(wanted)):
            print(f"--rounds {rounds} is not their own plan on {setting.name}: {cut}", file=sys.stderr)
        with stoppable():
            done = {planned.folder: found for planned, found in campaign.run(wanted, jobs)}
        runs = [(planned.label, planned.seed, done[planned.folder]) for planned in wanted]
        found = comparison.compare(setting.name, runs, metric)
        about = {**found.as_dict(), "names": comparison.names_of(found.task), "folder": str(folder)}
        _write_comparison(folder, found, about)
    if as_json:
        print(json.dumps(about))
    else:
        _show_comparison(folder, found, comparison.left_over(folder, wanted))


def _write_comparison(folder: Path, found: Comparison, about: dict[str, Any]) -> None:
    """Write a comparison as Markdown and as JSON."""
    from heterophony.base.disk import Disk
    from heterophony.studies import comparison

    title = f"# {found.setting}: {', '.join(method.label for method in found.methods)}"
    table = comparison.markdown(comparison.header(found), comparison.cells(found))
    text = "\n".join([title, "", *table, "", comparison.note(found)]) + "\n"
    Disk(private=False).replace(folder / "comparison.md", text.encode())
    Disk(private=False).replace(folder / "comparison.json", (json.dumps(about, indent=1) + "\n").encode())


def _show_comparison(folder: Path, found: Comparison, left: str) -> None:
    """Print a comparison as a table. `left` says which other runs lie in its folder."""
    from heterophony.studies import comparison

    head, rows = comparison.header(found), comparison.cells(found)
    left_out = show_table(found.setting, head, rows, ("wall", "virtual", "rounds", "sent", "others"))
    print(comparison.note(found))
    whole = f", with {', '.join(left_out)}" if left_out else ""
    print(f"{folder / 'comparison.md'}{whole}; figures: heterophony report {folder}")
    if left:
        print(f"There before, and not in this table: {left}; ask for them too, and they are reused")


def reproduce(
    name: Annotated[str | None, typer.Argument(help="An experiment or a TOML file; none: list them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version for two cores.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many; as the experiment says if not given.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run only this arm or block. Repeatable.")] = None,
    scale: Annotated[float, typer.Option(min=0.001, max=1, help="Take this share of the rounds.")] = 1.0,
    table: Annotated[bool, typer.Option("--table", help="Run nothing: the table of what is finished.")] = False,
    queue: Annotated[bool, typer.Option("--queue", help="What remains of all experiments, or of NAME.")] = False,
    minutes: Annotated[float | None, typer.Option(min=0, help="With --queue: run for so long; none: only say.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="With --queue: a few rounds of each arm.")] = False,
    pack: Annotated[Path | None, typer.Option(help="Write all runs in OUT into one archive (afterwards).")] = None,
    merge: Annotated[Path | None, typer.Option(help="Put the runs of an archive into OUT (before).")] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; if not given 1, with --queue as many as are faster.")
    ] = None,
    data: DataFolder = None,
    to: Annotated[Path | None, typer.Option("--out", help="Run folders and tables.")] = None,
    as_json: Json = False,
) -> None:
    """Run a table of a paper and print its figures beside ours; Markdown, CSV and JSON go to OUT.

    Runs that are finished in OUT (runs/reproduce/NAME unless given, with --quick NAME-quick) are reused. Others go on
    where they stopped.

    `--queue` works on what remains of all experiments, those that settle most first, in OUT/NAME (runs/reproduce/NAME).
    It says first how long each will take. `--pack` and `--merge` carry the runs in OUT from one machine to another.

    Example: heterophony reproduce fedh2l-table2 --quick

    Example: heterophony reproduce --queue --minutes 25 --pack runs.tar.xz
    """
    with complaints():
        from heterophony.studies.experiments.planning import Version

        version = Version(quick, seeds, scale, tuple(only or ()))
        if queue or pack is not None or merge is not None:
            orders = queued.Orders(name, version, queue, minutes, measure, pack, merge, jobs, as_json)
            with stoppable():
                queued.run(orders, compute_of(device_of(device), precision=precision), data, to)
        elif minutes is not None or measure:
            raise ValueError("--minutes and --measure go with --queue")
        elif name is None:
            _list_experiments(data, as_json)
        else:
            finished_elsewhere = table and device in ("cpu", "cuda")  # the table alone needs no such device here
            place = device if finished_elsewhere else device_of(device)
            compute = compute_of(place, precision=precision)
            _one_experiment(name, version, compute, data, to, None if table else (jobs or 1), as_json)


def _one_experiment(
    name: str, version: Version, compute: Compute, data: Path | None, to: Path | None, jobs: int | None, as_json: bool
) -> None:
    """Run what is not finished of an experiment, and show its table. `jobs` None: run nothing."""
    from heterophony.studies.experiments import Experiment, planning
    from heterophony.studies.experiments.reproduction import reproduction

    experiment = Experiment.load(name)
    folder = to or Path("runs/reproduce") / (experiment.name + ("-quick" if version.quick else ""))
    wanted = planning.planned_runs(experiment, version, folder, compute, data)
    if jobs is not None:
        _run_all([planned for runs in wanted.values() for planned in runs], jobs)
    made = reproduction(experiment, version, folder, compute, data, made=wanted)
    if as_json:
        print(made.as_json())
    else:
        _show(experiment, made)


def _list_experiments(data: Path | None, as_json: bool) -> None:
    """List all shipped experiments."""
    columns = ("name", "title", "runs", "quick", "missing")
    listing.tell(_experiments(data), as_json, columns, spare=("runs", "quick"))


def _experiments(data: Path | None) -> list[dict[str, Any]]:
    """Return what there is to say of every shipped experiment: its runs, and which data sets are missing here."""
    from heterophony.data.sources import catalogue
    from heterophony.studies.experiments import Experiment, planning, shipped

    here = {each.entry.name for each in catalogue.known(data) if each.found}
    found = []
    for name in shipped():
        experiment = Experiment.load(name)
        found.append(
            {
                "name": experiment.name,
                "title": experiment.title,
                "runs": _runs(experiment, quick=False),
                "quick": _runs(experiment, quick=True),
                "missing": [source for source in planning.sources(experiment) if source not in here],
            }
        )
    return found


def _runs(experiment: Experiment, quick: bool) -> int:
    """Return how many runs a version has."""
    from heterophony.studies.experiments import planning

    return sum(map(len, planning.planned_runs(experiment, planning.Version(quick), Path()).values()))


def _run_all(planned_runs: Sequence[PlannedRun], jobs: int) -> None:
    """Run what is not finished yet, one seed after the other, so that all arms have their first figures early."""
    from heterophony.studies import campaign

    by_seed = sorted(planned_runs, key=lambda planned: planned.seed)
    with stoppable():
        for _ in campaign.run(by_seed, jobs, check=False):
            pass


def _show(experiment: Experiment, made: Reproduction) -> None:
    """Print the table of an experiment and its claims."""
    from heterophony.studies.experiments import written

    print(f"{experiment.title}\n{made.facts['version']}")
    head = written.head(made.rows)
    for group in dict.fromkeys(row.group for row in made.rows):
        show_table(written.heading(made.facts, group), head, written.block(made.rows, group))
    if made.claims:
        show_table("What the paper claims", written.CLAIMS, [written.claim_cells(entry) for entry in made.claims])
    print(f"{written.tally(made.rows, made.claims)}\n{made.page}")


def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")],
    to: Annotated[Path | None, typer.Option(help="The page; DIR/report.html if not given.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write figures (PNG, SVG, PDF) and tables here.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page; the settings' names if not given.")] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Also print the page into a PDF beside it. Needs Chromium.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make one page of figures and tables of any runs, finished or not. It needs no network to be looked at.

    Example: heterophony report runs/compare/rotated-mnist-mixed --figures paper/figures
    """
    with complaints():
        from heterophony import report as reports
        from heterophony.base.amounts import counted
        from heterophony.report import pdf as paper

        if pdf:
            paper.browser()  # before anything is drawn
        found = reports.write(folders, to, figures=figures, title=title)
        if pdf:
            found["pdf"] = str(paper.write(Path(found["page"])))
    if as_json:
        print(json.dumps(found))
        return
    drawn, of = counted(len(found["figures"]), "figure"), counted(found["runs"], "run")
    print(f"{found['page']}: {drawn} of {of}, {found['bytes'] / 1e6:.1f} MB")
    if pdf:
        print(found["pdf"])
    if found["unfinished"]:
        print(f"not finished yet: {'; '.join(found['unfinished'])}")
    if figures is not None:
        print(f"{figures}: {counted(len(found['files']), 'file')}")


@contextmanager
def stoppable() -> Iterator[None]:
    """Say how to go on when it is stopped."""
    try:
        yield
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(130) from None


def show_table(title: str, head: list[str], rows: list[list[str]], spare: Sequence[str] = ()) -> list[str]:
    """Print a table, never cut. Where the terminal is narrow, `spare` columns are left out; return which."""
    shown = terminal.fitting(head, rows, spare, terminal.room())
    print()
    terminal.show([head[j] for j in shown], [[row[j] for j in shown] for row in rows], title, right=True)
    print()
    return [name for j, name in enumerate(head) if j not in shown]
