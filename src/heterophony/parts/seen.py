"""Which private rows a participant ever trains on: all, or some that it draws once and for all.

What comes of a random part of the rows says less of each of them. That is noise-free differential privacy (Sun and Lyu,
2020): nothing is added to what is sent, because the draw is random already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from heterophony.kernel.needs import Need, NoStream
from heterophony.kernel.node import Node
from heterophony.kernel.work import Note, Steps


@dataclass(frozen=True)
class SeenRows:
    """How many private rows are drawn, and whether a row may be drawn again. The variable "seen" keeps them."""

    count: Annotated[int | None, "private rows that a participant draws once, and alone trains on; none: all"] = None
    again: Annotated[bool, "a private row may be drawn more than once"] = False

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"count is a number of rows >= 1, got {self.count}")

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data."""
        if self.count is None:
            return []
        return [NoStream("draws its private rows once", instead=f"{name}.count=none")]

    def of(self, node: Node, view: str) -> Tensor | None:
        """Return the rows of a view that the node trains on; None: all."""
        rows = len(node.data[view])
        if self.count is None or not rows or (self.count >= rows and not self.again):
            return None
        if "seen" not in node.vars:
            draw = node.rng("seen")
            if self.again:
                drawn = torch.randint(rows, (self.count,), generator=draw)
            else:
                drawn = torch.randperm(rows, generator=draw)[: self.count]
            node.vars["seen"] = drawn.sort().values
        found: Tensor = node.vars["seen"]
        return found

    def note(self, node: Node, view: str) -> Steps:
        """Note which privacy the draw gives, if there is one."""
        if self.of(node, view) is not None:
            epsilon, delta = privacy_of(len(node.data[view]), len(node.vars["seen"]), self.again)
            yield Note("privacy.epsilon", epsilon)
            yield Note("privacy.delta", delta)


def privacy_of(rows: int, drawn: int, again: bool) -> tuple[float, float]:
    """Return epsilon and delta of what comes of so many drawn rows."""
    if again:
        return drawn * math.log((rows + 1) / rows), 1 - ((rows - 1) / rows) ** drawn
    return math.log((rows + 1) / (rows + 1 - drawn)), drawn / rows
