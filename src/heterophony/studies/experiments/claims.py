"""What a paper claims in words, and whether it holds of our runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heterophony.studies.experiments.experiment import Claim, Experiment, Group
from heterophony.studies.experiments.rows import FoundFigures, by_seed, less, paper_labels, printed_figure
from heterophony.studies.experiments.verdict import claimed, probability
from heterophony.tables.interval import Interval, holm, interval


def claims(experiment: Experiment, found: FoundFigures) -> list[dict[str, Any]]:
    """Return each claim with the mean difference over seeds, in points, and what came of it.

    A claim stands once for every group that it is about.
    """
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
    """Return claims with their verdicts, by p of paired t tests with Holm's correction for all of a table."""
    gaps = [Interval(entry["difference"], entry["half"], None, entry["n"]) for entry in said]
    raw = {str(i): probability(gap, said[i].get("margin")) for i, gap in enumerate(gaps)}
    ps = holm(raw)
    return [
        {**entry, "p": ps[str(i)], "verdict": claimed(gaps[i], ps[str(i)], entry.get("margin"))}
        for i, entry in enumerate(said)
    ]


def _contradicts(experiment: Experiment, claim: Claim, group: Group) -> bool:
    """Return whether the paper's own figures are the other way round there: then it does not claim it of this group."""
    if claim.of != "arms" or claim.margin is not None:
        return False
    labels = paper_labels(experiment)
    place = list(experiment.columns).index(claim.column or _first(experiment))
    more = printed_figure(group, labels[claim.more], place)
    fewer = printed_figure(group, labels[claim.less], place)
    return more is not None and fewer is not None and more < fewer


def _gaps(experiment: Experiment, claim: Claim, group: str, found: FoundFigures) -> dict[int, float]:
    """Return by how much one thing is more than the other, by seed."""
    arm = claim.arm or experiment.arms[0].label
    ends = []
    for name in (claim.more, claim.less):
        place = {"arms": (group, name), "columns": (group, arm), "groups": (name, arm)}[claim.of]
        column = name if claim.of == "columns" else claim.column or _first(experiment)
        ends.append(by_seed(found.get(place, {}), column))
    return less(*ends)


def _first(experiment: Experiment) -> str:
    """Return the first column, which a claim is about unless it says another."""
    return next(iter(experiment.columns))
