"""Which of several updates are similar: their inner products, and the best split in two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import torch
from torch import Tensor

from heterophony.kernel.work import Named


def length(item: Named, start: Named, names: Iterable[str]) -> float:
    """Return the length of item - start over these names, in double precision."""
    squares = [(item[name].double() - start[name].double()).square().sum() for name in names]
    return float(torch.stack(squares).sum().sqrt())


def between(one: Named, other: Named, start: Named, names: Sequence[str]) -> dict[str, Tensor]:
    """Return the direction from one - start to other - start, both taken at length one.

    An update whose inner product with it is positive is at a smaller angle to other - start than to one - start.
    """

    def unit(end: Named) -> dict[str, Tensor]:
        size = length(end, start, names) or 1.0
        return {name: (end[name].double() - start[name].double()) / size for name in names}

    here, there = unit(one), unit(other)
    return {name: (there[name] - here[name]).to(start[name]) for name in names}


def along(item: Named, start: Named, way: Named) -> float:
    """Return the inner product of item - start with a direction, in double precision."""
    parts = [((item[name].double() - start[name].double()) * way[name].double()).sum() for name in way]
    return float(torch.stack(parts).sum())


def products(items: Sequence[Named], start: Named, names: Iterable[str]) -> Tensor:
    """Return the matrix of inner products of all item - start over these names, in double precision, layer by layer."""
    total = torch.zeros(len(items), len(items), dtype=torch.float64)
    for name in names:
        moved = torch.stack([item[name].double() - start[name].double() for item in items]).flatten(1)
        total += (moved @ moved.T).cpu()
    return total


def cosines(gram: Tensor) -> Tensor:
    """Return cosines from inner products. What has no length is at right angles to everything."""
    lengths = gram.diagonal().sqrt()
    scale = torch.outer(lengths, lengths).clamp_min(torch.finfo(gram.dtype).tiny)
    return (gram / scale).clamp(-1, 1)


def bipartition(similar: Sequence[Sequence[float]]) -> tuple[list[int], list[int]]:
    """Return the split in two whose largest similarity across is the least of all. The first part has the first item.

    The most similar pairs are joined, one after the other, until two groups are left. So every pair that is more
    similar than the most similar one across is inside one of them.
    """
    count = len(similar)
    group = list(range(count))  # of each item: at first, each is a group of its own
    left = count
    for i, j in sorted(combinations(range(count), 2), key=lambda pair: -similar[pair[0]][pair[1]]):
        if left > 2 and group[i] != group[j]:
            joined, gone = group[i], group[j]
            group = [joined if own == gone else own for own in group]
            left -= 1
    first = [item for item in range(count) if group[item] == group[0]]
    second = [item for item in range(count) if group[item] != group[0]]
    return first, second
