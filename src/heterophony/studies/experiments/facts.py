"""What a reader must know of how an experiment's figures came about."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from heterophony.kernel.compute import Compute
from heterophony.runs.run import Run
from heterophony.runs.summary import Summary
from heterophony.studies.campaign import PlannedRun
from heterophony.studies.experiments.experiment import Experiment, Group, Quick
from heterophony.studies.experiments.planning import GroupAndArm, Version

UNKNOWN = "a machine that was not written down"


def about(
    experiment: Experiment, version: Version, wanted: Mapping[GroupAndArm, Sequence[PlannedRun]]
) -> dict[str, Any]:
    """Return what a reader must know of these runs, as plain values."""
    from heterophony import __version__

    total = sum(map(len, wanted.values()))
    done = {place: _done(runs) for place, runs in wanted.items()}
    finished = sum(map(len, done.values()))
    firsts = {place: runs[0][0] for place, runs in done.items() if runs}
    specs = {place: Run.spec(planned.folder) for place, planned in firsts.items()}
    machines = {summary.machine or UNKNOWN for runs in done.values() for _, summary in runs}
    quick = version.smaller(experiment)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": version.label() + ("" if finished == total else f", {finished} of {total} runs"),
        "command": command(experiment, version, _compute(list(specs.values()))),
        "date": str(date.today()),
        "machine": "; ".join(sorted(machines)),
        "heterophony": __version__,
        "unit": experiment.unit,
        "kept": "last round" if experiment.keep == "last" else "each node's best by validation",
        "notes": [*([_smaller(quick)] if quick else []), *experiment.notes],
        "quick": _others(experiment, quick) if quick else {},
        "runs": [_run(place, firsts[place], spec) for place, spec in specs.items()],
    }


def _done(runs: Sequence[PlannedRun]) -> list[tuple[PlannedRun, Summary]]:
    """Return those runs that are finished, with their summaries."""
    found = ((planned, planned.finished()) for planned in runs)
    return [(planned, summary) for planned, summary in found if summary is not None]


def command(experiment: Experiment, version: Version, compute: Compute) -> str:
    """Return the command that makes this table again, wherever the runs are kept."""
    words = ["heterophony", "reproduce", experiment.name, *(["--quick"] if version.quick else [])]
    words += ["--seeds", str(version.seeds)] if version.seeds else []
    words += ["--scale", f"{version.scale:g}"] if version.scale != 1 else []
    for name in version.only:
        words += ["--only", name]
    for name in ("device", "precision"):
        if (asked := getattr(compute, name)) != getattr(Compute(), name):
            words += [f"--{name}", asked]
    return shlex.join(words)


def _compute(specs: Sequence[Mapping[str, Any]]) -> Compute:
    """Return how runs were computed, as far as it is the same for all; the usual for the rest."""
    same: dict[str, Any] = {}
    for name in ("device", "precision"):
        values = {spec[name] for spec in specs}
        if len(values) == 1:
            same[name] = values.pop()
    return Compute(**same)


def _run(place: GroupAndArm, planned: PlannedRun, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return how an arm was run, with all that was decided for it."""
    same = {"group": place[0], "arm": place[1], "method": planned.method, "rounds": planned.goal}
    same |= {"device": spec["device"], "precision": spec["precision"], "evaluate": spec["evaluate"]}
    return {**same, "options": spec["settings"], "setting": spec["recipe"]["setting"]}


def _smaller(quick: Quick) -> str:
    """Say what the quick version has instead, whatever labels and the notes below say."""
    parts = [f"{quick.scale:g} times the rounds"] if quick.scale != 1 else []
    parts += [f"{key} = {json.dumps(value)}" for key, value in quick.set.items()]
    return f"The quick version has {', '.join(parts) or 'fewer runs'}, whatever the labels say."


def _others(experiment: Experiment, quick: Quick) -> dict[str, str]:
    """Return by group what its label promises and the quick version does not do."""
    said = {group.label: _other(group, quick) for group in experiment.groups}
    return {label: text for label, text in said.items() if text}


def _other(group: Group, quick: Quick) -> str:
    """Say what one group's label promises and the quick version does not do."""
    other = {key: value for key, value in quick.set.items() if key in group.set and group.set[key] != value}
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in other.items())
