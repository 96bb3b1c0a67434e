"""The evaluation table: one long list of rows, from which every paper's metric is computed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heterophony.tables.rows import RowLog
from heterophony.tasks.classification import Classification
from heterophony.tasks.score import Score, Sums
from heterophony.tasks.task import Task

EPSILON = "epsilon"  # the quantity of what a node has spent of its privacy budget so far
_PLACE = ("round", "time", "product", "node", "set", "split")


@dataclass(frozen=True)
class Rating:
    """What one model is worth on one set; None: its outputs are no numbers."""

    round: int
    time: float
    product: str
    node: str
    set: str
    split: str
    value: float | None


class Table:
    """Rows of (round, virtual time, product, model's node, test set, split, quantity, sum, n).

    `task` says which scores are made of the quantities.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), task: Task | None = None) -> None:
        self.rows = RowLog(rows)
        self.task: Task = task or Classification()

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        self.rows += rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def select(self, **wanted: Any) -> Table:
        """Return the rows that match: `table.select(product="global", quantity="accuracy")`."""
        return Table((row for row in self.rows if all(row[key] == value for key, value in wanted.items())), self.task)

    def ratings(self, score: Score | None = None) -> Iterator[Rating]:
        """Yield the figures of a score: one for each set on which a model was evaluated, in the order of the rows.

        `score` is the one by which the task is judged, unless another is given.
        """
        score = score or self.task.scores[0]
        sums: dict[tuple[Any, ...], Sums] = {}
        for row in self.rows:
            if row["quantity"] in score.quantities:
                sums.setdefault(tuple(row[name] for name in _PLACE), {})[row["quantity"]] = row["sum"], row["n"]
        for place, own in sums.items():
            if any(n for _, n in own.values()):
                yield Rating(**dict(zip(_PLACE, place, strict=True)), value=score.of(own))

    def mean(self) -> float | None:
        """Return the pooled mean of the selected rows, sum over n; None where it is undefined."""
        n = sum(row["n"] for row in self.rows)
        if not n or any(row["sum"] is None for row in self.rows):
            return None
        return float(sum(row["sum"] for row in self.rows) / n)

    def last(self) -> Table:
        """Return the rows of the last round among these."""
        newest = max((row["round"] for row in self.rows), default=None)
        return Table((row for row in self.rows if row["round"] == newest), self.task)


def model_of_all(nodes: Collection[str], homes: Mapping[str, str]) -> str | None:
    """Return the one node that has a model for all participants, such as a server; None where there is none."""
    return next(iter(nodes)) if len(nodes) == 1 and homes.keys().isdisjoint(nodes) else None


TableOrRows = Table | Iterable[Mapping[str, Any]]


def tabled(rows: TableOrRows) -> Table:
    """Return rows as a table. Plain rows are of a task with classes."""
    return rows if isinstance(rows, Table) else Table(dict(row) for row in rows)
