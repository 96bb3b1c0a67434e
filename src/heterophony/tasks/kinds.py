"""All kinds of tasks by their names in settings and files."""

from __future__ import annotations

from typing import Any

from heterophony.tasks.classification import Classification
from heterophony.tasks.multilabel import MultiLabel
from heterophony.tasks.regression import Regression
from heterophony.tasks.segmentation import Segmentation
from heterophony.tasks.sequence import Sequence

KINDS: dict[str, Any] = {made.kind: made for made in (Classification, MultiLabel, Regression, Segmentation, Sequence)}
