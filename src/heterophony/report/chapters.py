"""The runs of a report, by setting and method, with what several figures need of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heterophony.base.amounts import counted
from heterophony.report import palette
from heterophony.runs.findings.diverged import Diverged
from heterophony.runs.folder import Folder, find
from heterophony.runs.run import Run, RunError
from heterophony.tables.interval import mean
from heterophony.tables.metrics import curve
from heterophony.tasks.score import Score

POINTS = 300  # of a curve, at most: more cannot be seen, and make the page heavy


@dataclass(frozen=True)
class ArmRuns:
    """The runs of one arm, which is a method with its options on a setting: one run a seed."""

    label: str
    runs: tuple[Folder, ...]

    @property
    def first(self) -> Folder:
        return self.runs[0]

    @property
    def method(self) -> str:
        return self.first.summary.method

    @property
    def seeds(self) -> list[int]:
        return [run.spec["seed"] for run in self.runs]

    @cached_property
    def curves(self) -> list[list[dict[str, Any]]]:
        """The figures by round, of each seed."""
        return [curve(run.table, run.homes, run.headline) for run in self.runs]

    @property
    def rounds(self) -> int:
        """The rounds of a whole run. One that is not finished has had fewer."""
        return max(map(goal, self.runs))


@dataclass(frozen=True)
class Chapter:
    """All arms on one setting."""

    setting: str
    arms: tuple[ArmRuns, ...]
    colors: dict[str, str]
    unfinished: tuple[str, ...] = ()  # each run that is on its way, and how far it is

    @cached_property
    def recipe(self) -> dict[str, Any]:
        return self.arms[0].first.recipe

    @property
    def score(self) -> Score:
        """The score by which the task judges models."""
        return self.arms[0].first.summary.score

    @property
    def legend(self) -> list[tuple[str, str]]:
        return [(arm.label, self.colors[arm.label]) for arm in self.arms]

    @property
    def several(self) -> bool:
        """Whether there are several seeds of anything."""
        return any(len(arm.runs) > 1 for arm in self.arms)

    @property
    def bands(self) -> str:
        """A sentence on what surrounds a curve."""
        return " Bands reach from the lowest to the highest seed." if self.several else ""

    @property
    def one_seed(self) -> bool:
        """Whether all first seeds are the same."""
        return len({arm.seeds[0] for arm in self.arms}) == 1

    @property
    def same_rounds(self) -> bool:
        """Whether a round of one can be compared with a round of another."""
        return len({arm.rounds for arm in self.arms}) == 1


def chapters(places: Sequence[Path]) -> list[Chapter]:
    """Return the runs at and below these places by setting. A colour belongs to one label throughout."""
    named = _named([Folder(path) for path in find(list(places))])
    arms: dict[tuple[str, str], list[Folder]] = {}
    for (title, name), folders in named.items():
        arms |= {(title, label): runs for label, runs in _arms(name, folders).items()}
    if not arms:
        raise RunError(f"{places[0]}: no run there has finished a round yet")
    labels = sorted(dict.fromkeys(label for _, label in arms), key=lambda label: _rank(label, arms))
    colors = palette.assign(labels)
    titles = [title for title, _ in arms]
    settings = sorted(dict.fromkeys(titles), key=lambda setting: -titles.count(setting))  # the most compared first
    waiting = _waiting(named, settings)
    found = []
    for setting in settings:
        own = [ArmRuns(label, tuple(arms[setting, label])) for label in labels if (setting, label) in arms]
        found.append(Chapter(setting, tuple(own), colors, tuple(waiting[setting])))
    return found


def _waiting(named: dict[tuple[str, str], list[Folder]], settings: Sequence[str]) -> dict[str, list[str]]:
    """Return by setting how far each run is that is on its way.

    A setting that has nothing to show has no chapter: its runs are told in the first one, behind the others.
    """
    found: dict[str, list[str]] = {setting: [] for setting in settings}
    others = []
    for (title, label), runs in named.items():
        told = label if title in found else f"{label} on {title}"
        lines = [line for line in (_progress(told, run) for run in runs) if line]
        if title in found:
            found[title] += lines
        else:
            others += lines
    found[settings[0]] += others
    return found


def goal(folder: Folder) -> int:
    """Return the rounds that a run has had, or is to have."""
    return folder.summary.rounds if folder.summary.finished else Run(folder.path).goal


def _progress(label: str, folder: Folder) -> str:
    """Return which run it is and how far, if it is not at its end."""
    if folder.summary.finished:
        return ""
    whole = goal(folder)
    return f"{label}, seed {folder.spec['seed']}: {folder.summary.rounds} of {counted(whole, 'round')}"


def _named(folders: Sequence[Folder]) -> dict[tuple[str, str], list[Folder]]:
    """Return the runs by title and by method or folder, in the order of their seeds."""
    titles = [folder.summary.setting or "Python" for folder in folders]
    keys = [(title, _label(folder), folder.spec["seed"]) for title, folder in zip(titles, folders, strict=True)]
    twice = {key[0] for key in keys if keys.count(key) > 1}
    blocks: dict[str, set[str]] = {}
    for title, folder in zip(titles, folders, strict=True):
        blocks.setdefault(title, set()).add(_block(folder))
    found: dict[tuple[str, str], list[Folder]] = {}
    for folder, (title, label, _) in zip(folders, keys, strict=True):
        if title in twice and len(blocks[title]) > 1:
            title = f"{title}: {_block(folder)}"  # blocks of a table: the same methods and seeds under other conditions
        found.setdefault((title, label), []).append(folder)
    return {key: sorted(runs, key=lambda run: run.spec["seed"]) for key, runs in found.items()}


def _arms(name: str, folders: Sequence[Folder]) -> dict[str, list[Folder]]:
    """Return by label the runs that differ in their seed alone."""
    known = _shown(folders)
    same = len({_terms(run) for run in known}) == 1
    parts: dict[int, list[Folder]] = {}
    for run in known:
        parts.setdefault(run.summary.rounds if same else 0, []).append(run)
    found: dict[str, list[Folder]] = {}
    common = os.path.commonpath([run.path.absolute().parent for run in known]) if known else ""
    for rounds, runs in sorted(parts.items()):
        label = f"{name}, {counted(rounds, 'round')}" if len(parts) > 1 else name
        if same and len({run.spec["seed"] for run in runs}) == len(runs):
            found[label] = runs
            continue
        for run in runs:  # no seeds of one thing: each stands for itself
            found[f"{label}, {run.path.absolute().relative_to(common)}"] = [run]
    return found


def _shown(folders: Sequence[Folder]) -> list[Folder]:
    """Return the finished runs. Of runs on their way return those of which nothing else is known."""
    alike: dict[str, list[Folder]] = {}
    for folder in folders:
        alike.setdefault(_terms(folder), []).append(folder)
    known = []
    for runs in alike.values():
        finished = [run for run in runs if run.summary.finished]
        known += finished or [run for run in runs if run.summary.rounds]
    return known


def _terms(folder: Folder) -> str:
    """Return what two runs have in common if they are seeds of one arm."""
    recipe = {key: folder.recipe.get(key) for key in ("method", "setting", "changes")}
    return json.dumps([folder.spec["settings"], recipe, folder.spec.get("precision")], sort_keys=True)


def _label(folder: Folder) -> str:
    """Return the name of a run: its folder's for METHOD/seed-N, as `compare` lays them out, else its method's."""
    if folder.path.name.startswith("seed-"):
        return folder.path.parent.name
    return folder.summary.method


def _block(folder: Folder) -> str:
    """Return the folder that holds a block's methods: BLOCK/METHOD/seed-N, or BLOCK/RUN."""
    place = folder.path.parent
    return place.parent.name if folder.path.name.startswith("seed-") else place.name


def _rank(label: str, groups: dict[tuple[str, str], list[Folder]]) -> tuple[int, str]:
    """Order methods as the registry lists them, so that reports look alike; all others after them, by name."""
    from heterophony.catalogue import registry

    method = next((runs[0].summary.method for (_, name), runs in groups.items() if name == label), label)
    known = list(registry.all_methods())
    return (known.index(method) if method in known else len(known), label)


# -- series over rounds ----------------------------------------------------------------------------------------
Series = dict[int, float | None]  # round -> value; None where it is no number
Values = list[float | None]


def band(series: Sequence[Series]) -> tuple[list[int], Values, Values | None, Values | None]:
    """Return the rounds that all seeds have, their mean, lowest and highest there; None where one of them is None."""
    rounds = thin(sorted(set.intersection(*map(set, series))) if series else [])
    seeds = [[one[r] for one in series] for r in rounds]
    if len(series) < 2:
        return rounds, [mean(own) for own in seeds], None, None
    low, high = ([None if None in own else end(own) for own in seeds] for end in (min, max))  # type: ignore[type-var]
    return rounds, [mean(own) for own in seeds], low, high


def judged(points: Sequence[dict[str, Any]], score: Score, figure: str = "acc") -> Series:
    """Return figures by round as they are shown, in per cent say, from when all participants have been evaluated."""
    found: Series = {}
    for at in points:
        if found or at[figure] is not None:
            found[at["round"]] = None if at[figure] is None else score.scale * at[figure]
    return found


def in_words(value: float | None, digits: int = 1, unit: str = " %") -> str:
    return "no number" if value is None else f"{value:.{digits}f}{unit}"


def rated(value: float | None, score: Score) -> str:
    """Return a figure as it is shown, in words."""
    return in_words(value, score.digits, score.unit)


def lost(chapter: Chapter) -> str:
    """Return a sentence on whose curves have gaps."""
    found = []
    for arm in chapter.arms:
        seeds = [
            str(run.spec["seed"])
            for run, points in zip(arm.runs, arm.curves, strict=True)
            if run.summary.found(Diverged) or None in judged(points, chapter.score).values()
        ]
        if seeds:
            found.append(f"{arm.label} (seed {', '.join(seeds)})")
    return f" A curve has a gap where the outputs of a seed are no numbers: {with_and(found)}." if found else ""


def thin(rounds: list[int]) -> list[int]:
    """Return at most `POINTS` rounds, evenly, with the first and the last."""
    if len(rounds) <= POINTS:
        return rounds
    last = len(rounds) - 1
    return [rounds[round(i * last / (POINTS - 1))] for i in range(POINTS)]


def noted(folder: Folder, product: str, quantity: Callable[[str], bool]) -> Iterable[dict[str, Any]]:
    """Return rows of the table that are no scores: notes, and terms of losses."""
    return (row for row in folder.table if row["product"] == product and quantity(row["quantity"]) and row["n"])


def averaged(rows: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> dict[str, Series]:
    """Return by key and round the mean over nodes; None where that of one of them is None."""
    sums: dict[str, dict[int, Values]] = {}
    for row in rows:
        value = None if row["sum"] is None else row["sum"] / row["n"]
        sums.setdefault(key(row), {}).setdefault(row["round"], []).append(value)
    return {name: {r: mean(values) for r, values in own.items()} for name, own in sums.items()}


def some(shown: int, everything: int, what: str) -> str:
    """Return "40 of 80 participants", or "80 participants"."""
    return counted(shown, what) if shown == everything else f"{shown} of {counted(everything, what)}"


def moment(found: Sequence[tuple[ArmRuns, int]]) -> str:
    """Return which seed, and after which round: one for all, or of each arm."""
    labels: dict[str, list[str]] = {}
    for arm, last in found:
        labels.setdefault(f"seed {arm.seeds[0]}, after round {last + 1}", []).append(arm.label)
    if len(labels) == 1:
        return next(iter(labels))
    return "; ".join(f"{with_and(own)}: {when}" for when, own in labels.items())


def with_and(names: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
