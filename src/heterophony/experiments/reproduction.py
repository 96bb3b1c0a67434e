"""Runs of an experiment, and its table: ours beside the paper's, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from heterophony.campaign import Order
from heterophony.comparison import markdown
from heterophony.experiments.experiment import Arm, Claim, Experiment, ExperimentError, Group
from heterophony.experiments.figures import figures
from heterophony.experiments.verdict import claimed, verdict
from heterophony.record.disk import Disk
from heterophony.record.folder import Folder
from heterophony.record.interval import Interval, interval
from heterophony.record.run import RunError
from heterophony.settings import Setting
from heterophony.settings.assemble import PARTS

Place = tuple[str, str]  # group, arm
Found = dict[Place, dict[int, dict[str, float | None]]]  # seed -> column -> per cent


@dataclass(frozen=True)
class Version:
    """Which version of an experiment: all of it, its quick one, a part, or a shorter one."""

    quick: bool = False
    seeds: int | None = None
    scale: float = 1.0
    only: tuple[str, ...] = ()  # arms or groups

    def label(self) -> str:
        parts = ["quick version: smaller than the paper's, only the order means anything"] if self.quick else []
        parts += [f"rounds times {self.scale:g}"] if self.scale != 1 else []
        parts += [f"only {', '.join(self.only)}"] if self.only else []
        return "; ".join(parts) or "full version"


@dataclass(frozen=True)
class Row:
    """One figure of one arm."""

    group: str
    arm: str
    column: str
    ours: float | None
    half: float | None
    paper: float | None
    difference: float | None
    seeds: tuple[int, ...]
    verdict: str | None
    note: str = ""


def orders(
    experiment: Experiment, version: Version, folder: Path, compute: Mapping[str, Any], data: Path | None
) -> dict[Place, list[Order]]:
    """The runs of every arm in every group."""
    quick = experiment.quick if version.quick else None
    seeds = version.seeds or (quick.seeds if quick else experiment.seeds)
    scale = version.scale * (quick.scale if quick else 1.0)
    found: dict[Place, list[Order]] = {}
    loaded: dict[str, Setting] = {}
    for group, arm in _places(experiment, version):
        name = group.setting or experiment.setting
        if name not in loaded:
            loaded[name] = Setting.load(name)
        setting = loaded[name]
        # What stands there for all serves each method as far as it has such an option; what an arm says, it must have.
        common, last = {**experiment.set, **group.set}, quick.set if quick else {}
        fitting = {key: value for key, value in {**common, **last}.items() if _applies(arm.method, key)}
        changes = {**fitting, **arm.set, **{key: value for key, value in last.items() if key in fitting}}
        changes |= arm.quick if quick else {}
        wanted = arm.rounds or group.rounds or experiment.rounds or setting.plan(arm.method)[0]
        rounds = max(1, round(wanted * scale))
        place = folder / slug(group.label) / slug(arm.label) if group.label else folder / slug(arm.label)
        found[group.label, arm.label] = [
            Order(
                f"{group.label}: {arm.label}" if group.label else arm.label,
                arm.method,
                setting,
                place / f"seed-{seed}",
                seed,
                rounds,
                changes,
                dict(compute),
                data,
            )
            for seed in range(seeds)
        ]
    return found


def sources(experiment: Experiment) -> list[str]:
    """The data sets that the full version needs."""
    wanted = orders(experiment, Version(seeds=1), Path(), {}, None)
    found: dict[str, None] = {}
    for order, *_ in wanted.values():
        changes = {key: value for key, value in order.changes.items() if key.split(".")[0] in PARTS}
        found |= dict.fromkeys(order.setting.changed(changes).sources)
    return list(found)


def _places(experiment: Experiment, version: Version) -> list[tuple[Group, Arm]]:
    quick = experiment.quick if version.quick else None
    kind = "quick" if version.quick else "full"
    labels = [arm.label for arm in experiment.arms] + [group.label for group in experiment.groups]
    for name in version.only:
        if name not in labels:
            raise ExperimentError(f"--only {name!r}: {experiment.name} has {', '.join(repr(x) for x in labels if x)}")
    found = []
    for group in experiment.groups:
        if group.only not in (None, kind) or (quick and quick.groups and group.label not in quick.groups):
            continue
        for arm in experiment.arms:
            if (group.arms and arm.label not in group.arms) or (quick and quick.arms and arm.label not in quick.arms):
                continue
            arms = [n for n in version.only if n in [a.label for a in experiment.arms]]
            groups = [n for n in version.only if n in [g.label for g in experiment.groups]]
            if (not arms or arm.label in arms) and (not groups or group.label in groups):
                found.append((group, arm))
    if not found:
        raise ExperimentError(f"{experiment.name}: nothing is left to run")
    return found


def _applies(method: str, key: str) -> bool:
    """Whether a change is of the setting, or of an option that this method has."""
    known = _options(method)
    return key.split(".")[0] in PARTS or key in known or any(name.endswith(f".{key}") for name in known)


@cache
def _options(method: str) -> frozenset[str]:
    from heterophony import registry

    return frozenset(registry.lookup(method).options())


def slug(label: str) -> str:
    """A label as a folder's name."""
    return re.sub(r"[^A-Za-z0-9.=+-]+", "-", label).strip("-") or "all"


def fits(order: Order) -> bool:
    """Whether the folder holds this run, a part of it, or nothing: not one with other options, or more rounds."""
    try:
        order.finished()
    except RunError:
        return False
    return True


def gather(experiment: Experiment, wanted: Mapping[Place, Sequence[Order]]) -> Found:
    """The figures of what is finished."""
    found: Found = {}
    arms = {arm.label: arm for arm in experiment.arms}
    for place, runs in wanted.items():
        own = found.setdefault(place, {})
        for order in runs:
            if order.finished() is not None:
                own[order.seed] = figures(experiment, arms[place[1]], Folder(order.folder))
    return found


def table(experiment: Experiment, found: Found) -> list[Row]:
    """One row a figure, in the order of the file; comparators that we lack are rows too."""
    rows: list[Row] = []
    labels = {arm.label: arm.paper or arm.label for arm in experiment.arms}
    for group in experiment.groups:
        here = {arm: own for (name, arm), own in found.items() if name == group.label and own}
        if not here:
            continue
        ours = {
            column: {arm: interval([figure[column] for figure in own.values()]) for arm, own in here.items()}
            for column in experiment.columns
        }
        papers = {
            column: {arm: figure for arm in here if (figure := _printed(group, labels[arm], i)) is not None}
            for i, column in enumerate(experiment.columns)
        }
        for arm, own in here.items():
            for column in experiment.columns:
                got, paper = ours[column][arm], papers[column].get(arm)
                if got is None and paper is None:
                    continue
                off = None if got is None or paper is None else got.mean - paper
                mean, half = (None, None) if got is None else (got.mean, got.half)
                said = verdict(arm, ours[column], papers[column])
                rows.append(Row(group.label, arm, column, mean, half, paper, off, tuple(sorted(own)), said))
        for label, why in experiment.missing.items():
            for i, column in enumerate(experiment.columns):
                paper = _printed(group, label, i)
                if paper is not None or (i == 0 and label not in group.paper):
                    rows.append(Row(group.label, label, column, None, None, paper, None, (), None, why))
    return rows


def _printed(group: Group, label: str, place: int) -> float | None:
    figures = group.paper.get(label, ())
    return figures[place] if place < len(figures) else None


def claims(experiment: Experiment, found: Found) -> list[dict[str, Any]]:
    """Each claim with the mean difference over seeds, in points, and what came of it; in every group it is about."""
    out = []
    for claim in experiment.claims:
        groups = [""] if claim.of == "groups" else [group.label for group in experiment.groups]
        for group in groups:
            gap = _gap(experiment, claim, group, found)
            if gap is not None:
                entry = {"group": group, **claim.model_dump(), "difference": gap.mean, "half": gap.half, "n": gap.n}
                out.append({**entry, "verdict": claimed(gap, claim.margin)})
    return out


def _gap(experiment: Experiment, claim: Claim, group: str, found: Found) -> Interval | None:
    column, arm = claim.column or next(iter(experiment.columns)), claim.arm or experiment.arms[0].label
    ends: list[dict[int, float | None]] = []
    for name in (claim.more, claim.less):
        place = {"arms": (group, name), "columns": (group, arm), "groups": (name, arm)}[claim.of]
        figure = name if claim.of == "columns" else column
        ends.append({seed: own[figure] for seed, own in found.get(place, {}).items()})
    pairs = [(ends[0][seed], ends[1][seed]) for seed in sorted(ends[0].keys() & ends[1].keys())]
    return interval([None if a is None or b is None else a - b for a, b in pairs])


# -- written down -------------------------------------------------------------------------------------------------
HEAD = ["arm", "figure", "ours", "paper", "ours - paper", "seeds", "verdict"]


def cells(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [
            row.arm,
            row.column,
            _ours(row),
            "-" if row.paper is None else f"{row.paper:.2f}",
            "-" if row.difference is None else f"{row.difference:+.2f}",
            str(len(row.seeds)) if row.seeds else "-",
            row.verdict or "-",
        ]
        for row in rows
    ]


def _ours(row: Row) -> str:
    if row.note:
        return f"not here: {row.note}"
    if row.ours is None:
        return "-"
    return f"{row.ours:.2f}" + ("" if row.half is None else f" ± {row.half:.2f}")


def command(experiment: Experiment, version: Version, compute: Mapping[str, Any]) -> str:
    """What makes this table again, wherever the runs are kept."""
    words = ["heterophony", "reproduce", experiment.name, *(["--quick"] if version.quick else [])]
    words += ["--seeds", str(version.seeds)] if version.seeds else []
    words += ["--scale", f"{version.scale:g}"] if version.scale != 1 else []
    for name in version.only:
        words += ["--only", name]
    for key, value in compute.items():
        words += [f"--{key}", str(value)] if value != "cpu" else []
    return shlex.join(words)


def about(
    experiment: Experiment, version: Version, compute: Mapping[str, Any], wanted: Mapping[Place, Sequence[Order]]
) -> dict[str, Any]:
    """What a reader must know of how the figures came about."""
    from heterophony import __version__

    total = sum(map(len, wanted.values()))
    finished = [known for runs in wanted.values() for order in runs if (known := order.finished()) is not None]
    machines = sorted({known.get("machine") or "a machine that was not written down" for known in finished})

    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": version.label() + ("" if len(finished) == total else f", {len(finished)} of {total} runs"),
        "command": command(experiment, version, compute),
        "date": str(date.today()),
        "machine": "; ".join(machines),
        "heterophony": __version__,
        "kept": "last round" if experiment.keep == "last" else "each node's best by validation",
        "notes": list(experiment.notes),
    }


def text(facts: Mapping[str, Any], rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> str:
    """The table as Markdown."""
    which = facts["version"][0].upper() + facts["version"][1:]
    out = [f"# {facts['title']}", "", f"{facts['paper']}. **{which}.**", ""]
    out += [f"`{facts['command']}`, {facts['date']}, {facts['machine']}, heterophony {facts['heterophony']}.", ""]
    out += [f"Per cent, {facts['kept']}; mean and half of the 95 % interval over seeds. Verdicts: {tally(rows)}.", ""]
    for group in dict.fromkeys(row.group for row in rows):
        out += [f"## {group}", ""] if group else []
        out += [*markdown(HEAD, cells([row for row in rows if row.group == group])), ""]
    if said:
        out += ["## What the paper claims", "", *markdown(CLAIMS, [claim_cells(entry) for entry in said]), ""]
    if facts["notes"]:
        out += ["## How this differs from the paper", "", *(f"- {note}" for note in facts["notes"]), ""]
    return "\n".join(out)


CLAIMS = ["claim", "where", "difference", "seeds", "verdict"]


def claim_cells(entry: Mapping[str, Any]) -> list[str]:
    sign = ">" if entry["margin"] is None else f"within {entry['margin']:g} of"
    what = f"{entry['more']} {sign} {entry['less']}"
    if entry["of"] != "columns" and entry["column"]:
        what = f"{entry['column']}: {what}"
    half = "" if entry["half"] is None else f" ± {entry['half']:.2f}"
    where = ", ".join(part for part in (entry["group"], entry["by"]) if part)
    return [what, where or "-", f"{entry['difference']:+.2f}{half}", str(entry["n"]), str(entry["verdict"])]


def tally(rows: Sequence[Row]) -> str:
    """How often each verdict was reached."""
    said = [row.verdict for row in rows if row.verdict]
    return "; ".join(f"{said.count(name)} {name}" for name in dict.fromkeys(said)) or "none"


def write(folder: Path, facts: Mapping[str, Any], rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> Path:
    """NAME.md, NAME.csv and NAME.json in the folder; gives the first."""
    disk, name = Disk(), facts["experiment"]
    folder.mkdir(parents=True, exist_ok=True)
    disk.replace(folder / f"{name}.md", text(facts, rows, said).encode())
    sheet = io.StringIO()
    fields = list(Row.__dataclass_fields__)
    writer = csv.DictWriter(sheet, fields, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**asdict(row), "seeds": " ".join(map(str, row.seeds))})
    disk.replace(folder / f"{name}.csv", sheet.getvalue().encode())
    whole = {**facts, "rows": [asdict(row) for row in rows], "claims": list(said)}
    disk.replace(folder / f"{name}.json", (json.dumps(whole, indent=1) + "\n").encode())
    return folder / f"{name}.md"
