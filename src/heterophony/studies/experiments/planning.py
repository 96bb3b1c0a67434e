"""Which runs an experiment consists of: every arm in every group, for every seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heterophony.base.wording import meant, slug
from heterophony.catalogue import registry
from heterophony.kernel.compute import Compute
from heterophony.runs.run import RunError
from heterophony.settings import Setting
from heterophony.settings.assemble import PARTS
from heterophony.studies.campaign import PlannedRun
from heterophony.studies.experiments.experiment import Arm, Experiment, ExperimentError, Group, Quick

GroupAndArm = tuple[str, str]  # labels of a group and an arm


@dataclass(frozen=True)
class Version:
    """Which version of an experiment: all of it, its quick one, a part, or a shorter one."""

    quick: bool = False
    seeds: int | None = None
    scale: float = 1.0
    only: tuple[str, ...] = ()  # arms or groups

    def label(self) -> str:
        """Say which version it is."""
        parts = []
        if self.quick:
            parts.append("quick version: smaller than the paper's, only the order means anything")
        if self.scale != 1:
            parts.append(f"rounds times {self.scale:g}")
        if self.only:
            parts.append(f"only {', '.join(self.only)}")
        return "; ".join(parts) or "full version"

    def smaller(self, experiment: Experiment) -> Quick | None:
        """Return what the experiment says of its quick version, if this is that one."""
        return experiment.quick if self.quick else None


def planned_runs(
    experiment: Experiment, version: Version, folder: Path, compute: Compute = Compute(), data: Path | None = None
) -> dict[GroupAndArm, list[PlannedRun]]:
    """Return the runs of every arm in every group. Their folders lie in this folder."""
    _check_keys(experiment)
    quick = version.smaller(experiment)
    seeds = version.seeds or (quick.seeds if quick else experiment.seeds)
    scale = version.scale * (quick.scale if quick else 1.0)
    load = cache(Setting.load)
    found = {}
    for group, arm in _chosen(experiment, version):
        setting = load(group.setting or experiment.setting)
        place = folder / slug(group.label) / slug(arm.label) if group.label else folder / slug(arm.label)
        wanted = arm.rounds or group.rounds or experiment.rounds or setting.plan(arm.method)[0]
        found[group.label, arm.label] = [
            PlannedRun(
                label=f"{group.label}: {arm.label}" if group.label else arm.label,
                method=arm.method,
                setting=setting,
                folder=place / f"seed-{seed}",
                seed=seed,
                rounds=max(1, round(wanted * scale)),
                changes=_changes(experiment, group, arm, quick),
                compute=compute,
                data=data,
            )
            for seed in range(seeds)
        ]
    return found


def sources(experiment: Experiment) -> list[str]:
    """Return the data sets that the full version needs."""
    wanted = planned_runs(experiment, Version(seeds=1), Path())
    found: dict[str, None] = {}
    for planned, *_ in wanted.values():
        changes = {key: value for key, value in planned.changes.items() if key.split(".")[0] in PARTS}
        found |= dict.fromkeys(planned.setting.changed(changes).sources)
    return list(found)


def fits(planned: PlannedRun) -> bool:
    """Return whether the run's folder holds it, a part of it, or nothing.

    A folder that holds a run with other options, or of more rounds, does not fit.
    """
    try:
        planned.finished()
    except RunError:
        return False
    return True


def _chosen(experiment: Experiment, version: Version) -> list[tuple[Group, Arm]]:
    """Return the groups and arms that a version consists of."""
    only_groups, only_arms = _only(experiment, version)
    quick = version.smaller(experiment) or Quick()
    found = []
    for group in experiment.groups:
        if group.only == ("full" if version.quick else "quick"):
            continue
        if _among(group.label, quick.groups, only_groups):
            found += [(group, arm) for arm in experiment.arms if _among(arm.label, group.arms, quick.arms, only_arms)]
    if not found:
        raise ExperimentError(f"{experiment.name}: nothing is left to run")
    return found


def _only(experiment: Experiment, version: Version) -> tuple[list[str], list[str]]:
    """Return which groups and which arms `--only` names; raise where one of its names is neither."""
    arms = [arm.label for arm in experiment.arms]
    groups = [group.label for group in experiment.groups]
    for name in version.only:
        if name not in arms + groups:
            known = ", ".join(repr(label) for label in arms + groups if label)
            raise ExperimentError(f"--only {name!r}: {experiment.name} has {known}")
    return [name for name in version.only if name in groups], [name for name in version.only if name in arms]


def _among(label: str, *choices: Sequence[str]) -> bool:
    """Return whether a label is in all of these choices; an empty one is no choice."""
    return all(label in choice for choice in choices if choice)


def _changes(experiment: Experiment, group: Group, arm: Arm, quick: Quick | None) -> dict[str, Any]:
    """Return what an arm changes of the setting and of its method.

    What stands there for all serves each method as far as it has such an option. What an arm says, it must have. It
    keeps that in the quick version, unless it says otherwise for that: its label would lie.
    """
    common = {**experiment.set, **group.set, **(quick.set if quick else {})}
    own = {**arm.set, **(arm.quick if quick else {})}
    fitting = {key: value for key, value in common.items() if key not in own and _applies(arm.method, key)}
    return {**fitting, **own}


def _check_keys(experiment: Experiment) -> None:
    """Raise where a name is misspelt: it must not be passed over in silence."""
    groups = {f"groups {group.label!r}: set": group.set for group in experiment.groups}
    for where, keys in {"set": experiment.set, **groups, "quick.set": experiment.quick.set}.items():
        for key in keys:
            if not any(_applies(arm.method, key) for arm in experiment.arms):
                near = meant(key, _possible(experiment))
                raise ExperimentError(f"{experiment.name}.toml: {where}: no arm has an option {key!r}{near}")


def _possible(experiment: Experiment) -> list[str]:
    """Return all names that may be set for an experiment's methods, by their whole and their short names."""
    whole = {name for arm in experiment.arms for name in _options(arm.method)}
    return sorted({*whole, *(name.rpartition(".")[2] for name in whole), *PARTS})


def _applies(method: str, key: str) -> bool:
    """Return whether a change is of the setting, or of an option that this method has."""
    known = _options(method)
    return key.split(".")[0] in PARTS or key in known or any(name.endswith(f".{key}") for name in known)


@cache
def _options(method: str) -> frozenset[str]:
    return frozenset(registry.lookup(method).options())
