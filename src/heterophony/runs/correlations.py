"""How participants' outputs correlate, class by class, at the end of a run: FCCL's Figure 5.

An observer that sees all models and all private data, as only a simulation can. Nothing of it is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from heterophony.base.disk import Disk
from heterophony.base.seal import sealed
from heterophony.compute.eager import predict
from heterophony.federation import Federation
from heterophony.parts.aggregate import average
from heterophony.parts.correlation import cross_correlation
from heterophony.tables.result import Result

FILE = "correlation.json"


def correlations(
    federation: Federation, state: Callable[[str], Mapping[str, Any]], nodes: Collection[str], model: str = "model"
) -> dict[str, dict[str, Tensor]]:
    """Return the matrix of Eq. 1 between a participant's logits and the others' mean, by participant and kind of data.

    Rows are the participant's classes, columns the others'. Data are "public" or "private". Private data
    are the participant's own training rows. `state` gives a node's state, such as `Result.state`; `nodes` are those
    that took part.
    """
    here = [federation.node(name) for name in federation.homes if name in nodes]
    for node in here:
        node.restore(state(node.id))
    found: dict[str, dict[str, Tensor]] = {}
    if len(here) < 2:  # nobody to correlate with
        return found
    for node in here:
        found[node.id] = {}
        for name, view in (("public", "public"), ("private", "train")):
            if view not in node.data:
                continue
            data = node.data[view]
            own = predict(node.models[model], data)
            others = [predict(other.models[model], data) for other in here if other is not node]
            found[node.id][name] = cross_correlation(own, average(others))
    return found


def write(federation: Federation, result: Result, folder: Path) -> None:
    """Put the matrices into the run folder."""
    found = correlations(federation, result.state, result.nodes)
    cells = {node: {name: _rounded(matrix) for name, matrix in own.items()} for node, own in found.items()}
    Disk().replace(folder / FILE, sealed({"round": result.rounds - 1, "participants": cells}))


def _rounded(matrix: Tensor) -> list[list[float]]:
    return [[round(cell, 4) for cell in row] for row in matrix.tolist()]
