"""Tables with one row for each class: means by label, and how the tables of several nodes are put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heterophony.data.errors import DataError
from heterophony.data.table import Data
from heterophony.kernel.node import Node


class ClassMeans(NamedTuple):
    """For each class a mean vector and the number of examples behind it; both are zero for a class without examples."""

    means: Tensor
    counts: Tensor


def unknown() -> ClassMeans:
    """Return an empty table: that of a node that has heard nothing yet."""
    return ClassMeans(torch.zeros(0, 0), torch.zeros(0))


def counted(data: Data) -> Tensor:
    """Return the number of rows of each class."""
    if data.classes is None or data.y.dim() != 1:
        raise DataError("means and counts by label need data with `classes` and one label a row")
    return torch.bincount(data.y, minlength=data.classes).double()


def by_label(outputs: Tensor, data: Data) -> ClassMeans:
    """Return the mean output over the rows of each class."""
    counts = counted(data)
    sums = torch.zeros(len(counts), outputs.shape[1], dtype=torch.float64)
    sums.index_add_(0, data.y, outputs.double())
    return ClassMeans((sums / counts.clamp_min(1).unsqueeze(1)).float(), counts.float())


def merged(tables: Sequence[ClassMeans]) -> ClassMeans:
    """Return for each class the mean over the tables that have it, weighted by their counts, which are added."""
    if not tables:
        raise ValueError("nothing to merge: a skipped round brings no mail, so test `if mail` first")
    counts = torch.stack([table.counts.double() for table in tables])
    means = torch.stack([table.means.double() for table in tables])
    total = counts.sum(0)
    shares = counts / torch.where(total > 0, total, 1.0)
    together = (shares.unsqueeze(-1) * means).sum(0)
    return ClassMeans(together.float(), total.float())


def renewed(before: ClassMeans, found: ClassMeans) -> ClassMeans:
    """Return `found`, and for classes that are missing there the rows of `before`.

    Where the two tables are of different shapes, `before` is of no use.
    """
    if before.means.shape != found.means.shape:
        return found
    new = found.counts > 0
    means = torch.where(new.unsqueeze(1), found.means, before.means)
    return ClassMeans(means, torch.where(new, found.counts, before.counts))


def usual(tables: Mapping[str, ClassMeans], shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, ClassMeans]:
    """Return the tables of the shape that most have; tables of other shapes cannot be put together with them.

    A server without data or networks knows neither the number of classes nor the width of a mean, so the majority says
    it. Of two shapes that are equally frequent, the first wins. Tables without a row do not count.

    Args:
        tables: the tables by who sent them.
        shapes: the shapes that count, such as all that were ever heard; None: those of these tables.
    """
    if shapes is None:
        shapes = shapes_of(tables)
    frequency = Counter(tuple(shape) for shape in shapes.values())
    most = max(frequency, key=lambda shape: frequency[shape], default=None)
    return {name: table for name, table in tables.items() if tuple(table.means.shape) == most}


def shapes_of(tables: Mapping[str, ClassMeans]) -> dict[str, list[int]]:
    """Return the shape of each table that has rows."""
    return {name: list(table.means.shape) for name, table in tables.items() if len(table.means)}


def of_one_shape(server: Node, tables: Mapping[str, ClassMeans]) -> dict[str, ClassMeans]:
    """Return the tables of the shape that most clients sent when they were last heard.

    The server's variable "shapes" remembers these shapes. So a client that is alone in its cohort cannot change the
    shape of what the server knows.
    """
    server.vars["shapes"] = server.vars.get("shapes", {}) | shapes_of(tables)
    return usual(tables, server.vars["shapes"])


def fits_data(table: ClassMeans, data: Data, width: int) -> bool:
    """Return whether a table has a row for each class of these data, of this width; a sender may send anything."""
    return tuple(table.means.shape) == (data.classes, width)


def columns_for(table: ClassMeans, labels: Tensor) -> dict[str, Tensor]:
    """Return columns for rows with these labels: the class's `mean`, and `heard`, which is 1 where there is one."""
    return {"mean": table.means[labels].float(), "heard": (table.counts[labels] > 0).float()}
