"""Groups of what is near each other: the two nearest are joined until few enough are left."""

from __future__ import annotations

import torch
from torch import Tensor


def joined(distances: Tensor, groups: int) -> list[list[int]]:
    """Return so many groups of numbers from a square of distances, each in order. Near is the mean between members."""
    distance = distances.clone().fill_diagonal_(float("inf"))
    found = [[i] for i in range(len(distances))]
    while len(found) > groups:
        a, b = sorted(divmod(int(distance.argmin()), len(found)))
        near, far = len(found[a]), len(found[b])
        merged = (near * distance[a] + far * distance[b]) / (near + far)  # mean linkage
        distance[a], distance[:, a] = merged, merged
        distance[a, a] = float("inf")
        kept = [i for i in range(len(found)) if i != b]
        distance = distance[kept][:, kept]
        found[a] = sorted(found[a] + found[b])
        del found[b]
    return sorted(found)


def apart(vectors: Tensor, by: str) -> Tensor:
    """Return the distance of each two rows: Euclidean (`weights`), or one less the cosine from the mean (`updates`)."""
    if by == "weights":
        return torch.cdist(vectors, vectors)
    units = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    return 1 - units @ units.T
