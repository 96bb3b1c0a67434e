"""A column's figure of one finished run, in the column's unit."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from heterophony.runs.folder import Folder
from heterophony.studies.experiments.experiment import Arm, Column, Experiment
from heterophony.tables.clients import own
from heterophony.tables.interval import mean
from heterophony.tables.levels import LOSS, level_of, levels, perplexities, perplexity
from heterophony.tables.metrics import best_rounds, curve, measure, scores_of
from heterophony.tables.table import Table

KEEPS: dict[str | None, str] = {"last": "last", "validation": "best"}  # a column's round, as `keep` has it


@dataclass(frozen=True)
class Measured:
    """A figure; or None where the run has none, and why, where that is not plain."""

    value: float | None
    note: str = ""


def measured(experiment: Experiment, arm: Arm, folder: Folder) -> dict[str, Measured]:
    """Return the figures of a run by column, each in its unit.

    None: it has no such figure (a method without that product, say).
    """
    found = {}
    for name, column in experiment.columns.items():
        asked = column if column.product else column.model_copy(update={"product": arm.product})
        got = measured_column(asked, folder, experiment.keep)
        scale = 100 if column.unit == "per cent" else 1
        found[name] = got if got.value is None else Measured(scale * got.value)
    return found


def measured_column(column: Column, folder: Folder, keep: str = "last") -> Measured:
    """Return one column's figure, a share as a fraction.

    `keep` says of which round: the last, or the best by validation.
    """
    found = _beside_products(column, folder)
    if found is not None:
        return found
    product = column.product or folder.headline
    if column.sets:
        return _on_sets(column, folder, product)
    if (column.at, column.after, column.deviation) != (None, None, None):
        return _along(column, folder, product)
    if column.round == "test":
        return Measured(_best_on_test(column, folder, product))
    first = _of(column, folder, product, KEEPS.get(column.round, keep))
    if column.minus is None or first.value is None:
        return first
    other = _of(column, folder, column.minus, KEEPS.get(column.round, keep))
    return other if other.value is None else Measured(first.value - other.value)


def _beside_products(column: Column, folder: Folder) -> Measured | None:
    """Return a figure that is not the score of one product, such as a noted number; None: the column asks for that."""
    if column.unit == "perplexity":
        return Measured(_perplexity(column, folder))
    if column.note is not None:
        return Measured(_noted(column.note, column.level, folder))
    if column.level is not None:
        return _at_level(column, folder)
    if column.correlation is not None:
        return Measured(_correlated(column, folder))
    if column.term is not None:
        return Measured(_trained(column.term, folder))
    return None


def _best_on_test(column: Column, folder: Folder, product: str) -> float | None:
    """Return the best figure of all rounds by test data, as some papers print it."""
    values = [at[column.figure] for at in curve(_judged(column, folder.table), folder.homes, product)]
    return max((value for value in values if value is not None), default=None)


def _at_level(column: Column, folder: Folder) -> Measured:
    """Return a column's figure on one level of a tree."""
    parents = folder.recipe.get("parents")
    for row in levels(folder.table, parents, folder.homes) if parents else ():
        if row["level"] == column.level:
            return Measured(row.get(column.figure))
    return Measured(None)


def _on_sets(column: Column, folder: Folder, product: str) -> Measured:
    """Return a figure on some domains alone: the mean over all models of the product, whoever has them."""
    here = Table(
        (
            {**row, "split": "test"}
            for row in folder.table
            if row["set"] in column.sets and row["split"] in ("test", "unseen")
        ),
        folder.table.task,
    )
    return Measured(measure(here, {}, product).get(column.figure))


def _perplexity(column: Column, folder: Folder) -> float | None:
    """Return a perplexity: of a tree's level, or of a product. There, `union` is of all test sets, `proxy` of proxies.

    Means over participants are of losses, so they are geometric.
    """
    parents = folder.recipe.get("parents")
    if column.level is not None:
        rows = perplexities(folder.table, parents, folder.homes) if parents else []
        return next((row[column.figure] for row in rows if row["level"] == column.level), None)
    product = column.product or folder.headline
    if column.figure == "own":
        losses = list(own(folder.table, folder.homes, product, LOSS).values())
        return perplexity(mean(losses))
    split = "proxy" if column.figure == "proxy" else "test"
    return perplexity(measure(folder.table, folder.homes, product, split=split).get("loss"))


def _of(column: Column, folder: Folder, product: str, keep: str) -> Measured:
    """Return a column's figure of one product: of all participants, or the mean of those that the column names."""
    rounds = best_rounds(folder.table, folder.homes, product) if keep == "best" else None
    metrics = measure(_judged(column, folder.table), folder.homes, product, round=rounds or None)
    if keep == "best" and not rounds:
        return Measured(None, "no validation data to choose a round by" if metrics.acc is not None else "")
    if not column.participants:
        return Measured(metrics.get(column.figure))
    values = [metrics.participants.get(name, {}).get(column.figure) for name in column.participants]
    known = [value for value in values if value is not None]
    return Measured(statistics.fmean(known) if known and len(known) == len(values) else None)


def _judged(column: Column, table: Table) -> Table:
    """Return the evaluations with another score in the place of the one by which the task judges."""
    if column.score is None:
        return table
    own = scores_of(table)[0].name
    return Table(({**row, "quantity": own} for row in table if row["quantity"] == column.score), table.task)


def _correlated(column: Column, folder: Folder) -> float | None:
    """Return the mean over participants of what is on, or off, the diagonal at the end of the run."""
    people = (folder.extra("correlation.json") or {}).get("participants", {})
    means = []
    for kinds in people.values():
        for i, row in enumerate(kinds.get(column.correlation, [])):
            means += [cell for j, cell in enumerate(row) if (i == j) == (column.figure == "on")]
    return statistics.fmean(means) if means else None


def _trained(term: str, folder: Folder) -> float | None:
    """Return the last value of a term of the training loss, the mean over nodes."""
    last = {
        row["node"]: row["sum"] / row["n"]
        for row in folder.table
        if row["product"] == "training" and row["quantity"] == term and row["sum"] is not None
    }
    return statistics.fmean(last.values()) if last else None


def _noted(quantity: str, level: str | None, folder: Folder) -> float | None:
    """Return the mean of a noted number over all rounds, and over all nodes or those of one level of a tree."""
    parents = folder.recipe.get("parents") or {}
    rows = [row for row in folder.table.select(product="note", quantity=quantity) if row["sum"] is not None]
    if level is not None:
        rows = [row for row in rows if level_of(row["node"], parents) == level]
    return statistics.fmean(row["sum"] / row["n"] for row in rows) if rows else None


def _along(column: Column, folder: Folder, product: str) -> Measured:
    """Return how much a figure swings in the last rounds, or what it was on the way: by rounds, or by virtual time."""
    points = [at for at in curve(_judged(column, folder.table), folder.homes, product) if at[column.figure] is not None]
    if column.deviation is not None:
        last = [at[column.figure] for at in points[-column.deviation :]]
        return Measured(statistics.pstdev(last) if len(last) == column.deviation else None)
    if column.after is not None:
        rounds = column.after * (1 + max((row["round"] for row in folder.table), default=0))
        return _last(column, [at for at in points if at["round"] + 1 <= rounds + 1e-9])
    moment = column.at or 0.0
    if points and not _reaches(points, moment):
        return Measured(None, f"the run was over after {points[-1]['time']:.1f} s")
    return _last(column, [at for at in points if at["time"] <= moment + 1e-9])


def _last(column: Column, points: list[dict[str, float]]) -> Measured:
    """Return a column's figure of the last of these evaluations; none where there is none."""
    return Measured(points[-1][column.figure] if points else None)


def _reaches(points: list[dict[str, float]], moment: float) -> bool:
    """Return whether the last evaluation before a moment is known: at its pace, the next would have come after it."""
    step = points[-1]["time"] - points[-2]["time"] if len(points) > 1 else 0.0
    return moment <= points[-1]["time"] + 1e-9 or moment < points[-1]["time"] + step
