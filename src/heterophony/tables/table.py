"""The evaluation table: one long list of rows, from which every paper's metric is computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class Table:
    """Rows of (round, virtual time, product, model's node, test set, split, quantity, sum, n)."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self.rows = list(rows)

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        self.rows += rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def select(self, **wanted: Any) -> Table:
        """Return the rows that match: `table.select(product="global", quantity="accuracy")`."""
        return Table(row for row in self.rows if all(row[key] == value for key, value in wanted.items()))

    def mean(self) -> float | None:
        """Return the pooled mean of the selected rows, sum over n; None where it is undefined."""
        n = sum(row["n"] for row in self.rows)
        if not n or any(row["sum"] is None for row in self.rows):
            return None
        return float(sum(row["sum"] for row in self.rows) / n)

    def last(self) -> Table:
        """Return the rows of the last round among these."""
        newest = max((row["round"] for row in self.rows), default=None)
        return Table(row for row in self.rows if row["round"] == newest)
