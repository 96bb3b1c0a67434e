"""Tables with a row for each class: means by label, and what the tables of several nodes say together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heterophony.data.errors import DataError
from heterophony.data.table import Data
from heterophony.kernel.node import Node


class Table(NamedTuple):
    """A mean vector for each class, and from how many examples it is: zeros where there are none."""

    means: Tensor
    counts: Tensor


def unknown() -> Table:
    """The table of somebody who has heard nothing yet."""
    return Table(torch.zeros(0, 0), torch.zeros(0))


def counted(data: Data) -> Tensor:
    """How many rows each class has."""
    if data.classes is None or data.y.dim() != 1:
        raise DataError("means and counts by label need data with `classes` and one label a row")
    return torch.bincount(data.y, minlength=data.classes).double()


def by_label(outputs: Tensor, data: Data) -> Table:
    """The mean output of each class's rows."""
    counts = counted(data)
    sums = torch.zeros(len(counts), outputs.shape[1], dtype=torch.float64)
    sums.index_add_(0, data.y, outputs.double())
    return Table((sums / counts.clamp_min(1).unsqueeze(1)).float(), counts.float())


def merged(tables: Sequence[Table]) -> Table:
    """Class by class the mean of those who have it, by their counts; the counts are added."""
    if not tables:
        raise ValueError("nothing to merge: a skipped round brings no mail, so test `if mail` first")
    counts = torch.stack([table.counts.double() for table in tables])
    means = torch.stack([table.means.double() for table in tables])
    total = counts.sum(0)
    shares = counts / torch.where(total > 0, total, 1.0)
    return Table((shares.unsqueeze(-1) * means).sum(0).float(), total.float())


def renewed(before: Table, found: Table) -> Table:
    """What was found; of classes that nobody had now, what was known before, unless that is of another shape."""
    if before.means.shape != found.means.shape:
        return found
    new = found.counts > 0
    means = torch.where(new.unsqueeze(1), found.means, before.means)
    return Table(means, torch.where(new, found.counts, before.counts))


def usual(tables: Mapping[str, Table], shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, Table]:
    """The tables of the shape that most have, the first of equally many: others would not go with them.

    A server without data or networks knows neither how many classes there are nor how wide a mean is. Tables without a
    row say nothing, and do not count. `shapes` are all that were ever heard; without them, those of the tables count.
    """
    counted = Counter(map(tuple, (shapes if shapes is not None else shapes_of(tables)).values()))
    most = max(counted, key=lambda shape: counted[shape], default=None)
    return {name: table for name, table in tables.items() if tuple(table.means.shape) == most}


def shapes_of(tables: Mapping[str, Table]) -> dict[str, list[int]]:
    """Of those that have rows."""
    return {name: list(table.means.shape) for name, table in tables.items() if len(table.means)}


def agreed(server: Node, tables: Mapping[str, Table]) -> list[Table]:
    """The tables of the shape that most had when they were last heard, which "shapes" remembers.

    So nobody who is alone in its cohort changes what the others can use.
    """
    server.vars["shapes"] = server.vars.get("shapes", {}) | shapes_of(tables)
    return list(usual(tables, server.vars["shapes"]).values())


def fitting(table: Table, data: Data, width: int) -> bool:
    """Whether a table has a row for each of these classes, as wide as it must be: what was heard may be anything."""
    return tuple(table.means.shape) == (data.classes, width)


def spread(table: Table, labels: Tensor) -> dict[str, Tensor]:
    """Columns beside rows with these labels: `mean` of the row's own class, and `heard`, whether there is one."""
    return {"mean": table.means[labels].float(), "heard": (table.counts[labels] > 0).float()}
