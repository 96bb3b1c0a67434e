"""The table of an experiment: each figure of ours beside the paper's, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose, isnan

from heterophony.runs.folder import Folder
from heterophony.studies.campaign import PlannedRun
from heterophony.studies.experiments.experiment import Experiment, Group
from heterophony.studies.experiments.measured import Measured, measured
from heterophony.studies.experiments.planning import GroupAndArm
from heterophony.studies.experiments.verdict import verdict
from heterophony.tables.interval import interval

BySeed = dict[int, dict[str, Measured]]  # seed -> column -> per cent
FoundFigures = dict[GroupAndArm, BySeed]


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


def gather(experiment: Experiment, wanted: Mapping[GroupAndArm, Sequence[PlannedRun]]) -> FoundFigures:
    """Read the figures of what is finished."""
    found: FoundFigures = {}
    arms = {arm.label: arm for arm in experiment.arms}
    for place, runs in wanted.items():
        own = found.setdefault(place, {})
        for planned in runs:
            if planned.finished() is not None:
                own[planned.seed] = measured(experiment, arms[place[1]], Folder(planned.folder))
    return found


def table(experiment: Experiment, found: FoundFigures) -> list[Row]:
    """Return one row a figure, in the order of the file. Comparators that we lack are rows too."""
    rows: list[Row] = []
    labels = paper_labels(experiment)
    printed: set[tuple[str, tuple[float, ...]]] = set()  # lines of the paper's table that have a row already
    for group in experiment.groups:
        here = {arm: own for (name, arm), own in found.items() if name == group.label and own}
        for arm in here:
            line = labels[arm], group.paper.get(labels[arm], ())
            for row in _rows_of(experiment, group, arm, here, labels):
                twin = any(twins(row, other) for other in rows)
                rows.append(replace(row, again=row.paper is not None and (line in printed or twin)))
            printed.add(line)
        if here:
            rows += _missing(experiment, group)
    return rows


def paper_labels(experiment: Experiment) -> dict[str, str]:
    """Return the labels of the arms in the paper."""
    return {arm.label: arm.paper or arm.label for arm in experiment.arms}


def _rows_of(
    experiment: Experiment, group: Group, arm: str, here: Mapping[str, BySeed], labels: Mapping[str, str]
) -> list[Row]:
    """Return the rows of one arm in one group."""
    made = (_row(group, i, column, arm, here, labels) for i, column in enumerate(experiment.columns))
    return [row for row in made if row is not None]


def _missing(experiment: Experiment, group: Group) -> list[Row]:
    """Return rows of what the paper compares with and we do not have, with the reason."""
    rows = []
    for label, why in experiment.missing.items():
        for i, column in enumerate(experiment.columns):
            paper = printed_figure(group, label, i)
            if paper is not None or (i == 0 and label not in group.paper):
                rows.append(Row(group.label, label, column, None, None, paper, None, (), None, why))
    return rows


def _row(
    group: Group, place: int, column: str, arm: str, here: Mapping[str, BySeed], labels: Mapping[str, str]
) -> Row | None:
    """Return the row of one arm and column, or None where there is nothing to say.

    `here` has the figures of all arms of the group. `place` is the column's.
    """
    own, paper = here[arm], printed_figure(group, labels[arm], place)
    mine = by_seed(own, column)
    got = interval(list(mine.values()))
    note = next((figures[column].note for figures in own.values() if figures[column].note), "")
    if got is None and paper is None and not note:
        return None
    papers, gaps = {}, {}
    for name in here:
        known = printed_figure(group, labels[name], place)
        if known is not None and labels[name] != labels[arm]:  # not those beside the same printed figure
            papers[name] = known
            gaps[name] = interval(list(less(mine, by_seed(here[name], column)).values()))
    return Row(
        group=group.label,
        arm=arm,
        column=column,
        ours=None if got is None else got.mean,
        half=None if got is None else got.half,
        paper=paper,
        difference=None if got is None or paper is None else got.mean - paper,
        seeds=tuple(sorted(own)),
        verdict=verdict(got, paper, gaps, papers),
        note=note,
        by_seed=mine,
    )


def by_seed(own: BySeed, column: str) -> dict[int, float | None]:
    """Return one column's figures by seed."""
    return {seed: figures[column].value for seed, figures in sorted(own.items())}


def less(ours: Mapping[int, float | None], others: Mapping[int, float | None]) -> dict[int, float]:
    """Return the differences of the seeds that both have; none at all where one of them is undefined."""
    gaps = {}
    for seed in sorted(ours.keys() & others.keys()):
        mine, theirs = ours[seed], others[seed]
        if mine is None or theirs is None:
            return {}
        gaps[seed] = mine - theirs
    return gaps


def twins(row: Row, other: Row) -> bool:
    """Return whether two figures of an arm are one by construction.

    Those of a global model on all, own and others' data are.
    """
    if (row.group, row.arm, row.paper) != (other.group, other.arm, other.paper) or row.ours is None:
        return False
    pairs = ((row.ours, other.ours), (row.half or 0.0, other.half or 0.0))
    return all(b is not None and isclose(a, b, abs_tol=1e-9) for a, b in pairs)


def printed_figure(group: Group, label: str, place: int) -> float | None:
    """Return what the paper prints in a group for a label and the column at this place; nan stands for nothing."""
    figures = group.paper.get(label, ())
    return figures[place] if place < len(figures) and not isnan(figures[place]) else None
