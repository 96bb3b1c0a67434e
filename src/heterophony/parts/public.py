"""Public rows of a round. Which they are, and in which order, follows from the seed, so that only logits travel."""

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
from heterophony.kernel.work import Fit, Predict, Steps
from heterophony.parts.losses import soft_label_loss
from heterophony.parts.training import Training


def own_rows(node: Node) -> Tensor:
    """Return the numbers of the public rows of the node's own domain, as the view "mine" says; without it, of all."""
    if "mine" in node.data:
        return node.data["mine"].row
    return torch.arange(len(node.data["public"]))


@dataclass(frozen=True)
class PublicRows:
    """The public rows that a round uses. They are the same on every node, because they follow from the seed."""

    sample: Annotated[int | None, "public rows of a round; none: all"] = None
    fresh: Annotated[bool, "other public rows in each round"] = True

    def __post_init__(self) -> None:
        if self.sample is not None and self.sample < 1:
            raise ValueError(f"sample is a number of rows >= 1, got {self.sample}")

    def of(self, node: Node) -> Tensor | None:
        """Return the round's rows of a node's view "public".

        None stands for all rows: work then reads the view itself, not a copy of its rows.
        """
        total = len(node.data["public"])
        if self.sample is None or self.sample >= total:
            return None
        when = node.round if self.fresh else "once"
        shuffled = torch.randperm(total, generator=generator(node.seed, "public rows", when))
        return shuffled[: self.sample].sort().values

    def outputs(self, node: Node, training: bool = False) -> Predict:
        """Return the work order for what a node's network says of these rows."""
        if node.data["public"].classes is None:  # a door could not tell whose outputs can be combined
            raise DataError(
                "public data need `classes`, as many as networks have outputs: what is sent is checked by it"
            )
        return Predict("model", "public", self.of(node), training=training)

    def imitate(self, node: Node, distil: Training, labels: Tensor) -> Fit:
        """Return the work order to learn these soft labels of the rows. `distil` says how."""
        return distil.fit("model", soft_label_loss, data="public", rows=self.of(node), extra={"labels": labels})


def as_sent(logits: Tensor, half: bool) -> Tensor:
    """Return logits as they travel: in float16 if that is asked for, otherwise as they are."""
    return logits.half() if half else logits


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
    """Return a teacher's accuracy on these public rows, for which it gave these logits, or on its validation data.

    Where public rows have no labels, or with `on="one"`, it is 1. `known` says for each label whether it counts: others
    are neither guessed nor counted.
    """
    public, labels = node.data["public"], None
    if on == "validation":
        logits = yield Predict("model", "validation")
        labels = node.data["validation"].y
    elif on == "public" and "y" in public.columns:
        labels = public.y if rows is None else public.y[rows]
    if labels is None:
        return 1.0
    if known is not None:
        counts = known[labels]
        logits = logits.masked_fill(~known, -math.inf)[counts]
        labels = labels[counts]
    if not len(labels):
        return 0.0
    return float((logits.argmax(-1) == labels).float().mean())
