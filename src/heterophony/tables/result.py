"""What a finished run gives back."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from heterophony.tables.ledger import Ledger
from heterophony.tables.metrics import Metrics, measure
from heterophony.tables.table import Table


class Nodes(Protocol):
    """Whoever holds the nodes of a run that is over: an engine's host."""

    def state(self, node: str) -> dict[str, Any]:
        """Return a node's state as plain values."""

    def digest(self, node: str) -> bytes:
        """Return a hash of the node's models."""


@dataclass(frozen=True)
class Result:
    """Tables as plain rows, virtual and real seconds, and the nodes as they are in the end."""

    rounds: int
    table: Table
    ledger: Ledger
    clock: float
    seconds: float
    nodes: tuple[str, ...]  # those that took part
    homes: Mapping[str, str]
    headline: str
    host: Nodes = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """A hash of all models as they are when it is first asked for. Equal digests are equal models, to the bit."""
        whole = hashlib.sha256()
        for node in sorted(self.nodes):
            whole.update(node.encode() + self.host.digest(node))
        return whole.hexdigest()

    def metrics(self, product: str | None = None, **which: Any) -> Metrics:
        """Return every metric of a product (the method's headline unless named), of the last round or `round=...`."""
        if product is not None and product not in (known := {row["product"] for row in self.table}):
            raise ValueError(f"there is no product {product!r}; there are {', '.join(sorted(known)) or 'none'}")
        return measure(self.table, self.homes, product or self.headline, **which)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each figure: of a model, on a test set, after a round.

        The columns are round, time, product, node, set, split, score and value; a value that is no number is NaN.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise ImportError("Result.to_pandas needs pandas: pip install 'heterophony[pandas]'") from None
        rows = [
            {**vars(at), "score": score.name} for score in self.table.task.scores for at in self.table.ratings(score)
        ]
        columns = ["round", "time", "product", "node", "set", "split", "score", "value"]
        found = pandas.DataFrame(rows, columns=columns).astype({"value": float})
        return found.sort_values(columns[:2], kind="stable", ignore_index=True)

    def state(self, node: str) -> dict[str, Any]:
        """Return a node's final state: models, optimisers, variables."""
        return self.host.state(node)
