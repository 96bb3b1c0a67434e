"""Make docs/reference/results.md: every figure of ours beside theirs; and the queue in results/README.md.

python tools/make_results_page.py                         # from results/*.json and results/paces.json
python tools/make_results_page.py --paces runs/reproduce  # first take the measured paces of these run folders over

`tests/docs/test_results_page.py` fails where the pages are not what this makes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heterophony.runs.folder import find
from heterophony.runs.run import Run
from heterophony.studies.comparison import markdown
from heterophony.studies.experiments import Experiment, planning, shipped
from heterophony.studies.experiments.pace import NONE, MeasuredPace, expected
from heterophony.studies.experiments.planning import GroupAndArm
from heterophony.studies.experiments.queue import ordered

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "reference" / "results.md"
LIST = RESULTS / "README.md"
PACES = RESULTS / "paces.json"
BEGIN, END = "<!-- queue: made by tools/make_results_page.py -->", "<!-- end of the queue -->"
HEAD = """# Every figure beside theirs

Made by `tools/make_results_page.py` from `results/*.json`. [Results](../../results/README.md) says in words what came
out.

"Ours" is the mean over seeds and half of its 95 % interval. Figures are per cent unless a table says otherwise. Ours
are of the last round, unless the column or the table says which. A column "best of test" stands here only to be
compared with those who report it. [Compare](../how-to/compare.md) says what a verdict means. A dash: there is no such
figure.
"""


def tables(folder: Path) -> list[dict[str, Any]]:
    """Return the tables in a folder, by the names of their files. Other JSON files are no tables."""
    found = [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return [{**made, "file": path.stem} for path, made in found if isinstance(made, dict) and "experiment" in made]


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    full, quick = tables(RESULTS), tables(RESULTS / "quick")
    parts.append("## All tables\n\n" + "\n".join(_overview([*full, *quick])) + "\n")
    parts += [_section(made) for made in full]
    parts.append("## Quick versions\n\nThey are smaller than the paper's. Only an order can be read from them.\n")
    parts += [_section(made) for made in quick]
    return "\n".join(parts).rstrip() + "\n"


def _overview(made: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line a table: what of it is done, how many seeds, and how many verdicts of each kind."""
    rows = []
    for each in made:
        seeds = {len(row["seeds"]) for row in each["rows"] if row["seeds"]}
        span = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        rows.append([f"[{each['file']}](#{_anchor(each)})", _which(each), span, _tally(each)])
    return markdown(["table", "version", "seeds", "verdicts on printed figures"], rows)


def _tally(made: Mapping[str, Any]) -> str:
    said = [row["verdict"].partition(":")[0] for row in made["rows"] if row["verdict"] and not row["again"]]
    return "; ".join(f"{said.count(kind)} {kind}" for kind in dict.fromkeys(said)) or "-"


def _title(made: Mapping[str, Any]) -> str:
    return f"{made['file']}{', quick' if _quick(made) else ''}"


def _anchor(made: Mapping[str, Any]) -> str:
    """Return where a heading leads, as GitHub names it."""
    return _title(made).lower().replace(",", "").replace(" ", "-")


def _quick(made: Mapping[str, Any]) -> bool:
    return str(made["version"]).startswith("quick")


def _which(made: Mapping[str, Any]) -> str:
    """Return the version in few words."""
    version = str(made["version"])
    return version.replace("quick version: smaller than the paper's, only the order means anything", "quick version")


def _section(made: Mapping[str, Any]) -> str:
    """Return one table with all that a reader must know of it."""
    unit = made.get("unit") or "per cent"
    out = [
        f"### {_title(made)}",
        "",
        f"{made['title']}. {made['paper']}. {_which(made).capitalize()}; {unit}; {made['kept']}.",
        "",
    ]
    out += [f"`{made['command']}`, {made['date']}, {made['machine']}.", ""]
    out += markdown(["block", "arm", "figure", "ours", "theirs", "ours - theirs", "seeds", "verdict"],
                    [_cells(row) for row in made["rows"]])  # fmt: skip
    return "\n".join([*out, ""])


def _cells(row: Mapping[str, Any]) -> list[str]:
    half = "" if row["half"] is None else f" ± {row['half']:.1f}"
    ours = "-" if row["ours"] is None else f"{row['ours']:.1f}{half}"
    return [
        row["group"] or "-",
        row["arm"],
        row["column"],
        f"not here: {row['note']}" if row["note"] else ours,
        "-" if row["paper"] is None else f"{row['paper']:.1f}",
        "-" if row["difference"] is None else f"{row['difference']:+.1f}",
        str(len(row["seeds"])) if row["seeds"] else "-",
        row["verdict"] or "-",
    ]


# -- the queue --------------------------------------------------------------------------------------------------
def queue() -> str:
    """Return what remains of all experiments, in the order in which it is run, with the minutes that it will take."""
    paces: list[dict[str, Any]] = json.loads(PACES.read_text()) if PACES.exists() else []
    done = _done()
    rows = []
    for name in ordered(shipped()):
        experiment = Experiment.load(name)
        wanted = planning.planned_runs(experiment, planning.Version(), Path())
        left = {
            place: [run for run in runs if run.seed not in done.get((name, *place), set())]
            for place, runs in wanted.items()
        }
        total, open_ = sum(map(len, wanted.values())), sum(map(len, left.values()))
        if open_:
            rows.append(
                [name, f"{open_} of {total}", *_minutes(left, [each for each in paces if each["table"] == name])]
            )
    return "\n".join(markdown(["experiment", "runs left", "minutes", "estimated from"], rows))


def _done() -> dict[tuple[str, str, str], set[int]]:
    """Return the seeds that stand in a full table, by experiment, group and arm."""
    found: dict[tuple[str, str, str], set[int]] = {}
    for made in tables(RESULTS):
        for row in made["rows"]:
            found.setdefault((made["experiment"], row["group"], row["arm"]), set()).update(row["seeds"])
    return found


def _minutes(left: Mapping[GroupAndArm, Sequence[Any]], paces: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the minutes of what is left, run by run, and what they are estimated from."""
    known: dict[GroupAndArm, list[MeasuredPace]] = {}
    for each in paces:
        known.setdefault((each["group"], each["arm"]), []).append(
            MeasuredPace(each["seconds"], each["start"], each["done"], each["machine"])
        )
    said = [expected(place, run.goal, known) for place, runs in left.items() for run in runs]
    if not known:
        return ["not known", NONE]
    machines = "; ".join(sorted({pace.machine for own in known.values() for pace in own}))
    bases = ", ".join(dict.fromkeys(each.basis for each in said))
    return [f"{sum(each.seconds or 0 for each in said) / 60:,.0f}", f"{bases}: {machines}"]


def list_with_queue(text: str) -> str:
    """Return the text of results/README.md with the queue between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{LIST}: the marks of the queue are missing: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{queue()}\n\n{END}{after}"


def measured(root: Path) -> Iterator[dict[str, Any]]:
    """Return what was measured of the runs below a folder: one pace for each arm of a full table."""
    for name in shipped():
        folder = root / name
        if not folder.exists():
            continue
        here = {path.resolve() for path in find([folder])}
        for place, runs in planning.planned_runs(Experiment.load(name), planning.Version(), folder).items():
            for run in runs:
                pace = MeasuredPace.load(run.folder) if run.folder.resolve() in here else None
                if pace is not None:
                    spec = Run.spec(run.folder)
                    machine = f"{pace.machine}, {spec['precision']}"
                    yield {"table": name, "group": place[0], "arm": place[1], **asdict(pace), "machine": machine}
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paces", type=Path)
    args = parser.parse_args()
    if args.paces is not None:
        known = json.loads(PACES.read_text()) if PACES.exists() else []
        new = list(measured(args.paces))
        keys = {(each["table"], each["group"], each["arm"]) for each in new}
        kept = [each for each in known if (each["table"], each["group"], each["arm"]) not in keys]
        PACES.write_text(json.dumps([*kept, *new], indent=1) + "\n")
    PAGE.write_text(page())
    LIST.write_text(list_with_queue(LIST.read_text()))
    print(f"{PAGE}\n{LIST}")


if __name__ == "__main__":
    main()
