"""A tree from a finished run: participants whose models are alike become one subtree (B-HFL, Section 3.3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from heterophony.parts.linkage import apart, joined
from heterophony.runs.folder import Folder
from heterophony.runs.run import Run, RunError

By = Literal["weights", "updates"]


def clusters(folder: Path, count: int, by: By = "updates") -> list[list[str]]:
    """Return the participants of a run in so many groups, by their last models of the name "model".

    `weights` compares the weights themselves, `updates` the directions in which they differ from the mean of all. It
    takes the participants' models, which whoever holds the run folder has.
    """
    people = list(Folder(folder).homes)
    if not 1 <= count <= len(people):
        raise RunError(f"{count} clusters of {len(people)} participants")
    vectors = []
    with Run.reading(folder) as run:
        for name in people:
            models = run.node_state(name)["node"]["models"]
            if "model" not in models:
                raise RunError(f"participant {name} has no model of its own in {folder}")
            numbers = [tensor.double().flatten() for tensor in models["model"].values() if tensor.is_floating_point()]
            vectors.append(torch.cat(numbers))
    if len({len(vector) for vector in vectors}) > 1:
        raise RunError("participants have networks of different sizes, whose weights cannot be compared")
    return [[people[i] for i in group] for group in joined(apart(torch.stack(vectors), by), count)]


def as_setting(groups: list[list[str]]) -> str:
    """Return the lines of a setting that say this tree."""
    lines = [f"edge{i} = [{', '.join(map(_quoted, group))}]" for i, group in enumerate(groups)]
    return "\n".join(["[topology.tree.root]", *lines])


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
