"""A participant's views of its data: which of them follow from others, wherever a federation comes from.

Training reads "train", the private rows; "own", these and the public rows of the participant's own domain; or "all",
these and all public rows. "public" are the rows that everyone holds, and "mine" tells which of them are of its domain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from heterophony.data.stream import Stream
from heterophony.data.table import Data

View = Callable[[], Data]  # data that are made when they are first asked for
FOLLOW = {"own": ("train", "public"), "all": ("train", "public")}  # what can be made, and of which others


def completed(views: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's views with those that follow from them: "own" and "all". What is given stays as it is.

    Private rows that come over time cannot be joined with rows that are there from the start.
    """
    found = dict(views)
    if "train" not in views or "public" not in views or isinstance(views["train"], Stream):
        return found
    train, public = views["train"], views["public"]
    found.setdefault("all", partial(joined, train, public))
    found.setdefault("own", partial(_own, train, public, views.get("mine")))
    return found


def joined(*views: Data | View) -> Data:
    """Return the rows of several views; without labels, where one has none."""
    parts = [loaded(view) for view in views]
    names = [name for name in ("x", "y") if all(name in part.columns for part in parts)]
    columns = {name: torch.cat([part.columns[name] for part in parts]) for name in names}
    widest = max(parts, key=lambda part: part.task.outputs or 0)
    return Data.of_columns(columns, widest.task).augmented(parts[0].augment)


def loaded(view: Data | View) -> Data:
    """Return the data of a view."""
    return view() if callable(view) else view


def _own(train: Data | View, public: Data | View, mine: Data | View | None) -> Data:
    """Return private rows and the public ones of the own domain: all, if nothing tells which these are.

    Public rows without labels cannot be learnt as private ones are, so then there are the private rows alone.
    """
    shared = loaded(public)
    if "y" not in shared.columns:
        return loaded(train)
    return joined(train, shared if mine is None else shared.take(loaded(mine).row))
