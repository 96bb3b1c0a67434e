"""Public rows that everyone can name: which, and in which order, follows from the seed, so that only logits travel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

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


@dataclass(frozen=True)
class PublicRows:
    """Which public rows a round uses: the same on every node, because they follow from the seed."""

    sample: Annotated[int | None, "public rows of a round; none: all"] = None
    fresh: Annotated[bool, "other public rows in each round"] = True

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample < 1:
            raise ValueError(f"sample is a number of rows >= 1, got {self.sample}")

    def of(self, node: Node) -> Tensor | None:
        """Return the round's rows of a node's view "public".

        None is all of them: work then reads the view itself, not a copy of its rows.
        """
        total = len(node.data["public"])
        if self.sample is None or self.sample >= total:
            return None
        when = node.round if self.fresh else "once"
        return torch.randperm(total, generator=generator(node.seed, "public rows", when))[: self.sample].sort().values

    def outputs(self, node: Node) -> Predict:
        """Return the work order for what a node's network says of these rows."""
        if node.data["public"].classes is None:  # the door could not tell outputs that go together from others
            raise DataError(
                "public data need `classes`, as many as networks have outputs: what is sent is checked by it"
            )
        return Predict("model", "public", self.of(node))


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
