"""Runs of an experiment, and its table: ours beside the paper's, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import cache
from math import isclose
from pathlib import Path
from typing import Any

from heterophony.base.disk import Disk
from heterophony.base.wording import meant
from heterophony.kernel.compute import Compute
from heterophony.runs.folder import Folder
from heterophony.runs.run import Run, RunError
from heterophony.settings import Setting
from heterophony.settings.assemble import PARTS
from heterophony.studies.campaign import Order
from heterophony.studies.comparison import markdown, p_text
from heterophony.studies.experiments.experiment import Arm, Claim, Experiment, ExperimentError, Group, Quick
from heterophony.studies.experiments.figures import Figure, figures
from heterophony.studies.experiments.verdict import claimed, probability, verdict
from heterophony.tables.interval import Interval, holm, interval

Place = tuple[str, str]  # group, arm
Found = dict[Place, dict[int, dict[str, Figure]]]  # seed -> column -> per cent


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
    again: bool = False  # the printed figure, or both, stand in another row too, which counts
    by_seed: dict[int, float | None] = field(default_factory=dict)


def orders(
    experiment: Experiment, version: Version, folder: Path, compute: Compute = Compute(), data: Path | None = None
) -> dict[Place, list[Order]]:
    """The runs of every arm in every group."""
    quick = experiment.quick if version.quick else None
    _check_keys(experiment)
    seeds = version.seeds or (quick.seeds if quick else experiment.seeds)
    scale = version.scale * (quick.scale if quick else 1.0)
    found: dict[Place, list[Order]] = {}
    loaded: dict[str, Setting] = {}
    for group, arm in _places(experiment, version):
        name = group.setting or experiment.setting
        if name not in loaded:
            loaded[name] = Setting.load(name)
        setting = loaded[name]
        # What stands there for all serves each method as far as it has such an option; what an arm says, it must have,
        # and it keeps it in the quick version, unless it says otherwise for that: its label would lie.
        common = {**experiment.set, **group.set, **(quick.set if quick else {})}
        own = {**arm.set, **(arm.quick if quick else {})}
        fitting = {key: value for key, value in common.items() if _applies(arm.method, key) and key not in own}
        changes = {**fitting, **own}
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
                compute,
                data,
            )
            for seed in range(seeds)
        ]
    return found


def sources(experiment: Experiment) -> list[str]:
    """The data sets that the full version needs."""
    wanted = orders(experiment, Version(seeds=1), Path())
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


def _check_keys(experiment: Experiment) -> None:
    """A misspelt name must not be passed over in silence."""
    groups = {f"groups {group.label!r}: set": group.set for group in experiment.groups}
    known = {name for arm in experiment.arms for name in _options(arm.method)}
    for where, keys in {"set": experiment.set, **groups, "quick.set": experiment.quick.set}.items():
        for key in keys:
            if not any(_applies(arm.method, key) for arm in experiment.arms):
                near = meant(key, sorted({*known, *(name.rpartition(".")[2] for name in known), *PARTS}))
                raise ExperimentError(f"{experiment.name}.toml: {where}: no arm has an option {key!r}{near}")


def _applies(method: str, key: str) -> bool:
    """Whether a change is of the setting, or of an option that this method has."""
    known = _options(method)
    return key.split(".")[0] in PARTS or key in known or any(name.endswith(f".{key}") for name in known)


@cache
def _options(method: str) -> frozenset[str]:
    from heterophony.catalogue import registry

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
    printed: set[tuple[str, tuple[float, ...]]] = set()
    for group in experiment.groups:
        here = {arm: own for (name, arm), own in found.items() if name == group.label and own}
        if not here:
            continue
        for arm in here:
            line = labels[arm], group.paper.get(labels[arm], ())
            for i, column in enumerate(experiment.columns):
                row = _row(group, i, column, arm, here, labels)
                if row is not None:
                    twin = any(twins(row, other) for other in rows)
                    rows.append(replace(row, again=row.paper is not None and (line in printed or twin)))
            printed.add(line)
        for label, why in experiment.missing.items():
            for i, column in enumerate(experiment.columns):
                paper = _printed(group, label, i)
                if paper is not None or (i == 0 and label not in group.paper):
                    rows.append(Row(group.label, label, column, None, None, paper, None, (), None, why))
    return rows


def _row(
    group: Group,
    place: int,
    column: str,
    arm: str,
    here: Mapping[str, Mapping[int, Mapping[str, Figure]]],
    labels: Mapping[str, str],
) -> Row | None:
    own, paper = here[arm], _printed(group, labels[arm], place)
    got = interval([figures[column].value for figures in own.values()])
    note = next((figures[column].note for figures in own.values() if figures[column].note), "")
    if got is None and paper is None and not note:
        return None
    others = [name for name in here if labels[name] != labels[arm]]  # not those beside the same printed figure
    papers = {name: known for name in others if (known := _printed(group, labels[name], place)) is not None}
    mine = by_seed(own, column)
    gaps = {name: interval(list(_less(mine, by_seed(here[name], column)).values())) for name in papers}
    said = verdict(got, paper, gaps, papers)
    off = None if got is None or paper is None else got.mean - paper
    mean, half = (None, None) if got is None else (got.mean, got.half)
    return Row(group.label, arm, column, mean, half, paper, off, tuple(sorted(own)), said, note, by_seed=mine)


def by_seed(own: Mapping[int, Mapping[str, Figure]], column: str) -> dict[int, float | None]:
    return {seed: figures[column].value for seed, figures in sorted(own.items())}


def _less(ours: Mapping[int, float | None], others: Mapping[int, float | None]) -> dict[int, float]:
    """The differences of the seeds that both have; none at all where one of them is undefined."""
    seeds = sorted(ours.keys() & others.keys())
    pairs = {seed: (a, b) for seed in seeds if (a := ours[seed]) is not None and (b := others[seed]) is not None}
    return {seed: a - b for seed, (a, b) in pairs.items()} if len(pairs) == len(seeds) else {}


def twins(row: Row, other: Row) -> bool:
    """Whether two figures of an arm are one by construction: those of a global model on all, own and others' data."""
    if (row.group, row.arm, row.paper) != (other.group, other.arm, other.paper) or row.ours is None:
        return False
    pairs = ((row.ours, other.ours), (row.half or 0.0, other.half or 0.0))
    return all(b is not None and isclose(a, b, abs_tol=1e-9) for a, b in pairs)


def _printed(group: Group, label: str, place: int) -> float | None:
    figures = group.paper.get(label, ())
    return figures[place] if place < len(figures) else None


def claims(experiment: Experiment, found: Found) -> list[dict[str, Any]]:
    """Each claim with the mean difference over seeds, in points, and what came of it; in every group it is about."""
    out = []
    for claim in experiment.claims:
        for group in [Group()] if claim.of == "groups" else experiment.groups:
            if _contradicts(experiment, claim, group):
                continue
            seeds = _gaps(experiment, claim, group.label, found)
            gap = interval(list(seeds.values()))
            if gap is not None:
                entry = {"group": group.label, **claim.model_dump(), "difference": gap.mean, "half": gap.half}
                out.append({**entry, "n": gap.n, "by_seed": seeds})
    return judged(out)


def judged(said: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Claims with their verdicts, by p of paired t tests with Holm's correction for all of a table."""
    gaps = [Interval(entry["difference"], entry["half"], None, entry["n"]) for entry in said]
    raw = {str(i): probability(gap, said[i].get("margin")) for i, gap in enumerate(gaps)}
    ps = holm(raw)
    return [
        {**entry, "p": ps[str(i)], "verdict": claimed(gaps[i], ps[str(i)], entry.get("margin"))}
        for i, entry in enumerate(said)
    ]


def _contradicts(experiment: Experiment, claim: Claim, group: Group) -> bool:
    """Whether the paper's own figures are the other way round there: then it does not claim it of this group."""
    if claim.of != "arms" or claim.margin is not None:
        return False
    labels = {arm.label: arm.paper or arm.label for arm in experiment.arms}
    place = list(experiment.columns).index(claim.column or next(iter(experiment.columns)))
    more, less = (_printed(group, labels[name], place) for name in (claim.more, claim.less))
    return more is not None and less is not None and more < less


def _gaps(experiment: Experiment, claim: Claim, group: str, found: Found) -> dict[int, float]:
    column, arm = claim.column or next(iter(experiment.columns)), claim.arm or experiment.arms[0].label
    ends = []
    for name in (claim.more, claim.less):
        place = {"arms": (group, name), "columns": (group, arm), "groups": (name, arm)}[claim.of]
        ends.append(by_seed(found.get(place, {}), name if claim.of == "columns" else column))
    return _less(*ends)


# -- written down -------------------------------------------------------------------------------------------------
HEAD = ["arm", "figure", "ours", "paper", "ours - paper", "seeds", "verdict"]


def columns(rows: Sequence[Row]) -> list[int]:
    """Those of `HEAD` that are not empty in the whole table."""
    every = cells(rows)
    return [j for j in range(len(HEAD)) if any(row[j] != "-" for row in every)]


def head(rows: Sequence[Row]) -> list[str]:
    return [HEAD[j] for j in columns(rows)]


def block(rows: Sequence[Row], group: str) -> list[list[str]]:
    """The cells of a group, in the columns that the table has."""
    shown = columns(rows)
    return [[row[j] for j in shown] for row in cells([row for row in rows if row.group == group])]


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


def command(experiment: Experiment, version: Version, compute: Compute) -> str:
    """What makes this table again, wherever the runs are kept."""
    words = ["heterophony", "reproduce", experiment.name, *(["--quick"] if version.quick else [])]
    words += ["--seeds", str(version.seeds)] if version.seeds else []
    words += ["--scale", f"{version.scale:g}"] if version.scale != 1 else []
    for name in version.only:
        words += ["--only", name]
    for name in ("device", "precision"):
        if (asked := getattr(compute, name)) != getattr(Compute(), name):
            words += [f"--{name}", asked]
    return shlex.join(words)


def about(experiment: Experiment, version: Version, wanted: Mapping[Place, Sequence[Order]]) -> dict[str, Any]:
    """What a reader must know of how the figures came about."""
    from heterophony import __version__

    total = sum(map(len, wanted.values()))
    done = {
        place: [(order, known) for order in runs if (known := order.finished()) is not None]
        for place, runs in wanted.items()
    }
    finished = [known for runs in done.values() for _, known in runs]
    machines = sorted({known.machine or "a machine that was not written down" for known in finished})
    specs = {place: Run.spec(runs[0][0].folder) for place, runs in done.items() if runs}
    quick = experiment.quick if version.quick else None
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": version.label() + ("" if len(finished) == total else f", {len(finished)} of {total} runs"),
        "command": command(experiment, version, _compute(list(specs.values()))),
        "date": str(date.today()),
        "machine": "; ".join(machines),
        "heterophony": __version__,
        "kept": "last round" if experiment.keep == "last" else "each node's best by validation",
        "notes": [*([_smaller(quick)] if quick else []), *experiment.notes],
        "quick": {group.label: said for group in experiment.groups if quick and (said := _other(group, quick))},
        "runs": [_run(place, done[place][0][0], spec) for place, spec in specs.items()],
    }


def _compute(specs: Sequence[Mapping[str, Any]]) -> Compute:
    """Return how runs were computed, as far as it is the same for all; the usual for the rest."""
    same: dict[str, Any] = {}
    for name in ("device", "precision"):
        values = {spec[name] for spec in specs}
        if len(values) == 1:
            same[name] = values.pop()
    return Compute(**same)


def _run(place: Place, order: Order, spec: Mapping[str, Any]) -> dict[str, Any]:
    """How an arm was run, with all that was decided for it."""
    same = {"group": place[0], "arm": place[1], "method": order.method, "rounds": order.goal}
    same |= {"device": spec["device"], "precision": spec["precision"], "evaluate": spec["evaluate"]}
    return {**same, "options": spec["settings"], "setting": spec["recipe"]["setting"]}


def _smaller(quick: Quick) -> str:
    """What the quick version has instead, whatever labels and the notes below say."""
    parts = [f"{quick.scale:g} times the rounds"] if quick.scale != 1 else []
    parts += [f"{key} = {json.dumps(value)}" for key, value in quick.set.items()]
    return f"The quick version has {', '.join(parts) or 'fewer runs'}, whatever the labels say."


def _other(group: Group, quick: Quick) -> str:
    """What a group's label promises and the quick version does not do."""
    other = {key: value for key, value in quick.set.items() if key in group.set and group.set[key] != value}
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in other.items())


def heading(facts: Mapping[str, Any], group: str) -> str:
    said = facts.get("quick", {}).get(group)
    return f"{group} (quick: {said})" if said else group


def text(facts: Mapping[str, Any], rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> str:
    """The table as Markdown."""
    which = facts["version"][0].upper() + facts["version"][1:]
    out = [f"# {facts['title']}", "", f"{facts['paper']}. **{which}.**", ""]
    out += [f"`{facts['command']}`, {facts['date']}, {facts['machine']}, heterophony {facts['heterophony']}.", ""]
    out += [f"Per cent, {facts['kept']}; mean and half of the 95 % interval over seeds. {tally(rows, said)}.", ""]
    for group in dict.fromkeys(row.group for row in rows):
        out += [f"## {heading(facts, group)}", ""] if group else []
        out += [*markdown(head(rows), block(rows, group)), ""]
    if said:
        out += ["## What the paper claims", "", *markdown(CLAIMS, [claim_cells(entry) for entry in said]), ""]
        if any(entry["p"] is not None for entry in said):
            out += ["p: paired t test by seed, with Holm's correction for all claims of this table.", ""]
    if facts["notes"]:
        out += ["## How this differs from the paper", "", *(f"- {note}" for note in facts["notes"]), ""]
    return "\n".join(out)


CLAIMS = ["claim", "where", "difference", "seeds", "p", "verdict"]


def claim_cells(entry: Mapping[str, Any]) -> list[str]:
    sign = ">" if entry.get("margin") is None else f"within {entry['margin']:g} of"
    what = f"{entry['more']} {sign} {entry['less']}"
    if entry["of"] != "columns" and entry["column"]:
        what = f"{entry['column']}: {what}"
    half = "" if entry["half"] is None else f" ± {entry['half']:.2f}"
    where = ", ".join(part for part in (entry["group"], entry["by"]) if part)
    p = "-" if entry["p"] is None else p_text(entry["p"])
    return [what, where or "-", f"{entry['difference']:+.2f}{half}", str(entry["n"]), p, str(entry["verdict"])]


def tally(rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> str:
    """How often each verdict was reached: of printed figures, each once, of rows beside the same ones, of claims."""
    parts = {
        "Printed figures": [row.verdict for row in rows if not row.again],
        "Beside the same figures again": [row.verdict for row in rows if row.again],
        "Claims": [entry["verdict"] for entry in said],
    }
    counted = {what: _counts([each for each in found if each]) for what, found in parts.items()}
    return ". ".join(f"{what}: {found}" for what, found in counted.items() if found) or "No verdicts"


def _counts(said: Sequence[str]) -> str:
    kinds = [each.partition(":")[0] for each in said]  # without the arms that it names
    return "; ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def write(folder: Path, facts: Mapping[str, Any], rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> Path:
    """NAME.md, NAME.csv and NAME.json in the folder; gives the first."""
    disk, name = Disk(private=False), facts["experiment"]
    folder.mkdir(parents=True, exist_ok=True)
    disk.replace(folder / f"{name}.md", text(facts, rows, said).encode())
    sheet = io.StringIO()
    fields = [name for name in Row.__dataclass_fields__ if name != "by_seed"]
    fields.insert(fields.index("seeds") + 1, "seed list")
    writer = csv.DictWriter(sheet, fields, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({**asdict(row), "seeds": len(row.seeds), "seed list": " ".join(map(str, row.seeds))})
    disk.replace(folder / f"{name}.csv", sheet.getvalue().encode())
    whole = {**facts, "rows": [asdict(row) for row in rows], "claims": list(said)}
    disk.replace(folder / f"{name}.json", (json.dumps(whole, indent=1) + "\n").encode())
    return folder / f"{name}.md"
