"""Which of several updates go together: their inner products, and the best split in two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from heterophony.kernel.work import Named


def length(item: Named, start: Named, names: Iterable[str]) -> float:
    """How long item - start is over these names, in double precision."""
    squares = [(item[name].double() - start[name].double()).square().sum() for name in names]
    return float(torch.stack(squares).sum().sqrt())


def between(one: Named, other: Named, start: Named, names: Sequence[str]) -> dict[str, Tensor]:
    """What an update has to be along to be at a smaller angle to other - start than to one - start."""
    ends = [(end, length(end, start, names) or 1.0) for end in (one, other)]
    units = [{name: (end[name].double() - start[name].double()) / size for name in names} for end, size in ends]
    return {name: (units[1][name] - units[0][name]).to(start[name]) for name in names}


def along(item: Named, start: Named, way: Named) -> float:
    """The inner product of item - start with a way, in double precision."""
    parts = [((item[name].double() - start[name].double()) * way[name].double()).sum() for name in way]
    return float(torch.stack(parts).sum())


def products(items: Sequence[Named], start: Named, names: Iterable[str]) -> Tensor:
    """The matrix of inner products of item - start over these names, in double precision; a layer at a time."""
    total = torch.zeros(len(items), len(items), dtype=torch.float64)
    for name in names:
        moved = torch.stack([item[name].double() - start[name].double() for item in items]).flatten(1)
        total += (moved @ moved.T).cpu()
    return total


def cosines(gram: Tensor) -> Tensor:
    """Cosines from inner products; what has no length is at right angles to everything."""
    lengths = gram.diagonal().sqrt()
    return (gram / torch.outer(lengths, lengths).clamp_min(torch.finfo(gram.dtype).tiny)).clamp(-1, 1)


def bipartition(similar: Sequence[Sequence[float]]) -> tuple[list[int], list[int]]:
    """The split in two whose largest similarity across is the least of all; the first part has the first item.

    The most similar pairs are joined, one after the other, until two groups are left: whatever is more similar than
    the largest across is inside one of them.
    """
    count = len(similar)
    group, left = list(range(count)), count
    pairs = ((i, j) for i in range(count) for j in range(i + 1, count))
    for i, j in sorted(pairs, key=lambda pair: -similar[pair[0]][pair[1]]):
        if left > 2 and group[i] != group[j]:
            group, left = [group[i] if g == group[j] else g for g in group], left - 1
    first = [i for i in range(count) if group[i] == group[0]]
    return first, [i for i in range(count) if group[i] != group[0]]
