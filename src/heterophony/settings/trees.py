"""The tree of a setting: as it is written there, or grown from who the participants are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from heterophony.base.seeds import derive
from heterophony.kernel.topology import Topology, names_below, tree
from heterophony.parts.linkage import joined
from heterophony.settings.setting import SettingError, TopologyPart
from heterophony.settings.world import World


def grow(part: TopologyPart, world: World, seed: int = 0) -> Topology:
    """Return a tree whose leaves are the participants. The seed deals them where that is to be at random."""
    if world.tree is not None and part.tree is None and part.clusters is None:
        part = part.model_copy(update={"tree": world.tree})
    try:
        return tree(_spec(part, world, seed), part.residuals)
    except ValueError as error:
        raise SettingError(f"topology: {error}") from None


def _spec(part: TopologyPart, world: World, seed: int) -> dict[str, Any]:
    """Return the tree as a setting writes one: names below names."""
    participants = list(world.homes)
    if part.by == "random":
        random.Random(derive(seed, "clusters")).shuffle(participants)
    if part.tree is not None:
        _check(part.tree, participants)
        return part.tree
    if part.clusters is not None:
        return _numbered(_clusters(part, world, participants, part.clusters))
    domains = set(world.homes.values())
    if not 1 < len(domains) < len(participants):
        return _numbered(_contiguous(participants, max(1, len(participants) // 2)))
    natural = _by_domain(world)
    if part.by == "random":
        order = iter(participants)
        return _numbered([[next(order) for _ in group] for group in natural])
    return {"root": {f"edge-{group[0].rpartition('.')[0] or group[0]}": group for group in natural}}


def _numbered(groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return a tree with these groups of leaves below `edge0`, `edge1`, ..."""
    return {"root": {f"edge{i}": list(group) for i, group in enumerate(groups)}}


def _by_domain(world: World) -> list[list[str]]:
    """Return the participants of each domain."""
    groups: dict[str, list[str]] = {}
    for participant, domain in world.homes.items():
        groups.setdefault(domain, []).append(participant)
    return list(groups.values())


def _clusters(part: TopologyPart, world: World, participants: Sequence[str], clusters: int) -> list[list[str]]:
    """Return so many groups: of similar labels, or of those that stand side by side."""
    if clusters > len(participants):
        raise ValueError(f"{clusters} clusters of {len(participants)} participants")
    return _alike(world, clusters) if part.by == "labels" else _contiguous(participants, clusters)


def _contiguous(participants: Sequence[str], groups: int) -> list[list[str]]:
    return [[participants[i] for i in part] for part in np.array_split(np.arange(len(participants)), groups)]


def _alike(world: World, clusters: int) -> list[list[str]]:
    """Group participants with similar shares of classes. It takes their label counts, which then are no secret."""
    if world.task.kind != "classification":
        raise ValueError('rows have no labels to cluster by: set topology.by to "order" or "random"')
    participants = list(world.homes)
    counts = [torch.bincount(world.views[p]["train"]().y, minlength=world.outputs).double() for p in participants]
    shares = torch.stack([count / count.sum() for count in counts])
    return [[participants[i] for i in group] for group in joined(torch.cdist(shares, shares), clusters)]


def _check(spec: Mapping[str, Any], participants: Sequence[str]) -> None:
    leaves = list(_leaves(spec))
    if strange := [leaf for leaf in leaves if leaf not in participants]:
        raise ValueError(f"leaf {strange[0]!r} is no participant; those are {', '.join(participants[:8])}")
    if missing := [participant for participant in participants if participant not in leaves]:
        raise ValueError(f"participant {missing[0]!r} is no leaf of the tree")


def _leaves(below: Any, above: str = "the root") -> Iterator[str]:
    for node in names_below(above, below):
        further = below[node] if isinstance(below, Mapping) else None
        if further:
            yield from _leaves(further, node)
        else:
            yield node
