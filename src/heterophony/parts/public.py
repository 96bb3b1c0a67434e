"""Public rows that everyone can name: which, and in which order, follows from the seed, so that only logits travel."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from heterophony.base.seeds import generator
from heterophony.data.errors import DataError
from heterophony.kernel.needs import Need, Validation
from heterophony.kernel.node import Node
from heterophony.kernel.work import Predict, Steps


def own_rows(node: Node) -> Tensor:
    """Which public rows are of the node's own domain, as the view "mine" says; without one, all of them."""
    return node.data["mine"].row if "mine" in node.data else torch.arange(len(node.data["public"]))


def public_rows(node: Node, count: int | None, fresh: bool = True, view: str = "public") -> Tensor | None:
    """`count` rows of the public view, drawn anew each round or once; the same on every node.

    None is all of them, for `count` and as the answer: work then reads the view itself, not a copy of its rows.
    """
    total = len(node.data[view])
    if count is None or count >= total:
        return None
    when = node.round if fresh else "once"
    return torch.randperm(total, generator=generator(node.seed, "public rows", when))[:count].sort().values


def outputs(node: Node, count: int | None, fresh: bool = True) -> Predict:
    """The work order for what a node's network says of such rows."""
    if node.data["public"].classes is None:  # the door could not tell outputs that go together from others
        raise DataError("public data need `classes`, as many as networks have outputs: what is sent is checked by it")
    return Predict("model", "public", public_rows(node, count, fresh))


def needed_for(on: Literal["public", "validation", "one"]) -> list[Need]:
    """Return what `confidence` needs of the data."""
    return [Validation("confidence = 'validation'")] if on == "validation" else []


def confidence(
    node: Node,
    on: Literal["public", "validation", "one"],
    rows: Tensor | None,
    logits: Tensor,
    known: Tensor | None = None,
) -> Steps:
    """A teacher's accuracy on these public rows, for which it gave these logits, or on its validation data.

    Where public rows have no labels it is 1. `known` are labels to go by: others are neither guessed nor counted.
    """
    public, labels = node.data["public"], None
    if on == "validation":
        logits, labels = (yield Predict("model", "validation")), node.data["validation"].y
    elif on == "public" and "y" in public.columns:
        labels = public.y if rows is None else public.y[rows]
    if labels is None:
        return 1.0
    if known is not None:
        logits, labels = logits.masked_fill(~known, -math.inf)[known[labels]], labels[known[labels]]
    return float((logits.argmax(-1) == labels).float().mean()) if len(labels) else 0.0
