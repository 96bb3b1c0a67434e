"""All kinds of tasks by their names in settings and files."""

from __future__ import annotations

from typing import Any

from heterophony.tasks.classification import Classification
from heterophony.tasks.multilabel import MultiLabel
from heterophony.tasks.regression import Regression
from heterophony.tasks.segmentation import Segmentation
from heterophony.tasks.sequence import Sequence
from heterophony.tasks.task import Task, unpacked

KINDS: dict[str, Any] = {made.kind: made for made in (Classification, MultiLabel, Regression, Segmentation, Sequence)}

# What says in each kind how many classes, labels or targets there are.
SIZES = {
    "classification": "classes",
    "multilabel": "labels",
    "regression": "targets",
    "segmentation": "classes",
    "sequence": "classes",
}


def sized(kind: str, size: int, **options: Any) -> Task:
    """Return the task of a kind with so many classes, labels or targets."""
    return unpacked({"kind": kind, SIZES[kind]: size, **options})
