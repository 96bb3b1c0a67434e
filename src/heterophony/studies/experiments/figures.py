"""A column's figure of one finished run, in per cent."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from heterophony.runs.folder import Folder
from heterophony.studies.experiments.experiment import Arm, Column, Experiment
from heterophony.tables.levels import levels
from heterophony.tables.metrics import best_rounds, curve, measure


@dataclass(frozen=True)
class Figure:
    """A figure; or None where the run has none, and why, where that is not plain."""

    value: float | None
    note: str = ""


def figures(experiment: Experiment, arm: Arm, folder: Folder) -> dict[str, Figure]:
    """column -> per cent; None where the run has no such figure (a method without that product, say)."""
    found = {}
    for name, column in experiment.columns.items():
        asked = column if column.product else column.model_copy(update={"product": arm.product})
        got = figure(asked, folder, experiment.keep)
        found[name] = got if got.value is None else Figure(100 * got.value)
    return found


def figure(column: Column, folder: Folder, keep: str = "last") -> Figure:
    if column.level is not None:
        parents = folder.recipe.get("parents")
        rows = levels(folder.table, parents, folder.homes) if parents else []
        row = next((row for row in rows if row["level"] == column.level), {})
        return Figure(row.get(column.figure))
    product = column.product or folder.headline
    if column.at is not None or column.deviation is not None:
        return _along(column, folder, product)
    first = _of(column, folder, product, keep)
    if column.minus is None or first.value is None:
        return first
    other = _of(column, folder, column.minus, keep)
    return other if other.value is None else Figure(first.value - other.value)


def _of(column: Column, folder: Folder, product: str, keep: str) -> Figure:
    rounds = best_rounds(folder.table, folder.homes, product) if keep == "best" else None
    metrics = measure(folder.table, folder.homes, product, round=rounds or None)
    if keep == "best" and not rounds:
        return Figure(None, "no validation data to choose a round by" if metrics.acc is not None else "")
    if not column.participants:
        return Figure(getattr(metrics, column.figure))
    values = [metrics.participants.get(name, {}).get(column.figure) for name in column.participants]
    known = [value for value in values if value is not None]
    return Figure(statistics.fmean(known) if known and len(known) == len(values) else None)


def _along(column: Column, folder: Folder, product: str) -> Figure:
    points = [at for at in curve(folder.table, folder.homes, product) if at[column.figure] is not None]
    if column.deviation is not None:
        last = [at[column.figure] for at in points[-column.deviation :]]
        return Figure(statistics.pstdev(last) if len(last) == column.deviation else None)
    moment = column.at or 0.0
    if points and not _reaches(points, moment):
        return Figure(None, f"the run was over after {points[-1]['time']:.1f} s")
    return Figure(next((at[column.figure] for at in reversed(points) if at["time"] <= moment + 1e-9), None))


def _reaches(points: list[dict[str, float]], moment: float) -> bool:
    """Whether the last evaluation before a moment is known: at its pace, the next would have come after it."""
    step = points[-1]["time"] - points[-2]["time"] if len(points) > 1 else 0.0
    return moment <= points[-1]["time"] + 1e-9 or moment < points[-1]["time"] + step
