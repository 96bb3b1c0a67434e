"""A column's figure of one finished run, in per cent."""

from __future__ import annotations

import statistics

from heterophony.experiments.experiment import Arm, Column, Experiment
from heterophony.record.folder import Folder
from heterophony.record.levels import levels
from heterophony.record.metrics import best_rounds, curve, measure

ENOUGH = 0.8  # a run that was over long before a moment says nothing of it


def figures(experiment: Experiment, arm: Arm, folder: Folder) -> dict[str, float | None]:
    """column -> per cent; None where the run has no such figure (a method without that product, say)."""
    found = {}
    for name, column in experiment.columns.items():
        asked = column if column.product else column.model_copy(update={"product": arm.product})
        value = figure(asked, folder, experiment.keep)
        found[name] = None if value is None else 100 * value
    return found


def figure(column: Column, folder: Folder, keep: str = "last") -> float | None:
    if column.level is not None:
        parents = folder.recipe.get("parents")
        rows = levels(folder.table, parents, folder.homes) if parents else []
        row = next((row for row in rows if row["level"] == column.level), {})
        value: float | None = row.get(column.figure)
        return value
    product = column.product or folder.headline
    if column.at is not None or column.deviation is not None:
        return _along(column, folder, product)
    first = _of(column, folder, product, keep)
    if column.minus is None:
        return first
    other = _of(column, folder, column.minus, keep)
    return None if first is None or other is None else first - other


def _of(column: Column, folder: Folder, product: str, keep: str) -> float | None:
    rounds = best_rounds(folder.table, folder.homes, product) if keep == "best" else {}
    metrics = measure(folder.table, folder.homes, product, round=rounds or None)
    if not column.participants:
        found: float | None = getattr(metrics, column.figure)
        return found
    values = [metrics.participants.get(name, {}).get(column.figure) for name in column.participants]
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _along(column: Column, folder: Folder, product: str) -> float | None:
    points = [at for at in curve(folder.table, folder.homes, product) if at[column.figure] is not None]
    if column.deviation is not None:
        last = [at[column.figure] for at in points[-column.deviation :]]
        return statistics.pstdev(last) if len(last) == column.deviation else None
    moment = column.at or 0.0
    if not points or points[-1]["time"] < ENOUGH * moment:
        return None
    return next((at[column.figure] for at in reversed(points) if at["time"] <= moment + 1e-9), None)
