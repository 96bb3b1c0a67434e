"""Who takes part, and with what: rows by class, domain and network of each participant, as a run begins.

An observer of a simulation: nothing of it is ever sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from heterophony.base.disk import Disk
from heterophony.base.seal import sealed
from heterophony.data.table import Data
from heterophony.federation import Federation
from heterophony.models.description import shown

FILE = "population.json"
MOST = 100  # participants; the views of more would be built only for a picture that nobody can read


def spread(homes: Mapping[str, str], most: int) -> list[str]:
    """Return at most so many participants, from each domain in turn; of very many domains, evenly over them."""
    crowds: dict[str, list[str]] = {}
    for who, home in homes.items():
        crowds.setdefault(home, []).append(who)
    groups = list(crowds.values())
    if len(groups) > most:
        groups = [groups[place * len(groups) // most] for place in range(most)]
    turns = [who for turn in zip_longest(*groups) for who in turn if who is not None]
    chosen = set(turns[:most])
    return [who for who in homes if who in chosen]


def population(federation: Federation) -> dict[str, dict[str, Any]]:
    """Return for each participant its domain, its network if that has a name, and its training rows, also by class.

    Rows may be of no class, as the texts of a language model.
    """
    networks = (federation.recipe or {}).get("networks", {})
    found = {}
    for name in spread(federation.homes, MOST):
        view = (federation.of(federation.data, name) or {}).get("train")
        data = view() if callable(view) else view
        if not isinstance(data, Data) or "y" not in data.columns:
            continue
        network = next(iter(networks.get(name, {}).values()), None)
        named = None if network is None else shown(network)
        about = {"domain": federation.homes[name], "network": named, "rows": len(data), "classes": _classes(data)}
        found[name] = about
    return found


def _classes(data: Data) -> list[int]:
    """Return how many rows there are of each class; nothing where rows are of no single class."""
    if data.y.ndim != 1 or data.y.is_floating_point():
        return []
    counts: list[int] = torch.bincount(data.y[data.y >= 0], minlength=data.classes or 0).tolist()
    return counts


def write(federation: Federation, folder: Path) -> None:
    """Put who takes part into the run folder."""
    found = population(federation)
    if found:
        Disk().replace(folder / FILE, sealed({"participants": found}))
