"""Where a participant's network puts test images: the two main directions of its features, at the end of a run.

Figure 1 of FedH2L and Figure 4 of FCCL. Features are what the last linear layer of a network is given. An observer that
sees all models and test sets, as only a simulation can; nothing of it is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.base.disk import Disk
from heterophony.base.seal import sealed
from heterophony.base.seeds import generator
from heterophony.compute.eager import predict
from heterophony.data.table import Data
from heterophony.federation import Federation
from heterophony.tables.result import Result

FILE = "features.json"
ROWS, PARTICIPANTS, DOMAINS = 60, 4, 6  # test rows of a domain, and the most of each, so that a run's end is not felt


def features(model: nn.Module, data: Data) -> Tensor | None:
    """Return what the last linear layer is given, a row each; None where a network has no such layer."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        return None
    caught: list[Tensor] = []
    hook = layers[-1].register_forward_pre_hook(lambda _, given: caught.append(given[0].detach().cpu()))
    try:
        predict(model, data)
    finally:
        hook.remove()
    found = torch.cat(caught) if caught else torch.empty(0)
    return found.float() if found.ndim == 2 and len(found) == len(data) else None


def principal(rows: Tensor) -> tuple[Tensor, list[float]]:
    """Return two principal components of each row, in units of the first's deviation, and their shares of variance.

    The sign of a component is free: the largest entry of its direction is made positive.
    """
    centred = rows.double() - rows.double().mean(0)
    left, values, right = torch.linalg.svd(centred, full_matrices=False)
    count = min(2, len(values))
    signs = torch.stack([right[i][right[i].abs().argmax()].sign() for i in range(count)])
    scores = left[:, :count] * values[:count] * signs
    total = float((values**2).sum()) or 1.0
    scale = float(scores[:, 0].std()) or 1.0
    if count < 2:
        scores = torch.cat([scores, torch.zeros(len(scores), 1, dtype=scores.dtype)], 1)
    return scores / scale, [float(v) for v in (values[:2] ** 2 / total)]


def maps(
    federation: Federation, state: Callable[[str], Mapping[str, Any]], nodes: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return each participant's points (x, y), labels and domains, for a few test rows of each domain that it knows."""
    found: dict[str, dict[str, Any]] = {}
    here = [name for name in federation.homes if name in nodes]
    for name in here[:PARTICIPANTS]:
        node = federation.node(name)
        node.restore(state(name))
        slot = "model" if "model" in node.models else next(iter(node.models), "")
        made = _map(federation, name, node.models[slot]) if slot else None
        if made is not None:
            found[name] = {**made, "model": slot}
    return found


def _map(federation: Federation, name: str, model: nn.Module) -> dict[str, Any] | None:
    """Return the map of one participant's network.

    None where it has no features, or some are no numbers, or rows have no class each, by which they are coloured.
    """
    sets = [(domain, data) for domain, split, data in federation.test_sets(name) if split == "test"]
    if any(data.task.kind != "classification" for _, data in sets):
        return None
    seen: list[Tensor] = []
    labels: list[int] = []
    domains: list[str] = []
    for domain, data in sets[:DOMAINS]:
        drawn = torch.randperm(len(data), generator=generator(federation.seed, "features", domain))[:ROWS]
        rows = data.take(drawn)
        caught = features(model, rows)
        if caught is None:
            return None
        seen.append(caught)
        labels += rows.y.tolist()
        domains += [domain] * len(rows)
    if not seen or len(labels) < 3 or not bool(torch.cat(seen).isfinite().all()):
        return None
    points, shares = principal(torch.cat(seen))
    cells = [[round(x, 3), round(y, 3)] for x, y in points.tolist()]
    return {"points": cells, "labels": labels, "domains": domains, "shares": shares}


def write(federation: Federation, result: Result, folder: Path) -> None:
    """Put the maps into the run folder."""
    found = maps(federation, result.state, result.nodes)
    if found:
        Disk().replace(folder / FILE, sealed({"round": result.rounds - 1, "participants": found}))
