"""What a participant can hold of a network that all have in common, and the factory of its slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from heterophony.base.seeds import seeded
from heterophony.kernel.freezing import frozen_names

if TYPE_CHECKING:
    from heterophony.kernel.networks import Model


@dataclass(frozen=True)
class Capacity:
    """How much of the common network a participant can hold; without arguments, all of it."""

    width: float = 1.0  # this share of each layer's units
    depth: int | None = None  # so many blocks; None: all there are
    rank: int | None = None  # of its adapters; None: as the method says

    def __post_init__(self) -> None:
        if not 0 < self.width <= 1:
            raise ValueError(f"a width is a share in (0, 1], got {self.width}")
        for name, value in (("depth", self.depth), ("rank", self.rank)):
            if value is not None and value < 1:
                raise ValueError(f"a {name} is a whole number >= 1, got {value}")


def largest(capacities: Iterable[Capacity]) -> Capacity:
    """Return what a server holds: the whole network, with adapters of the highest rank that anyone has."""
    return Capacity(rank=max((each.rank for each in capacities if each.rank is not None), default=None))


def smallest(capacities: Iterable[Capacity]) -> Capacity:
    """Return what everyone of these can hold."""
    found = list(capacities)

    def least(values: Iterable[int | None]) -> int | None:
        return min((value for value in values if value is not None), default=None)

    width = min((each.width for each in found), default=1.0)
    return Capacity(width, least(each.depth for each in found), least(each.rank for each in found))


class Cut(Protocol):
    """How a slice is cut: a frozen dataclass of plain options, so that a file can name it."""

    def __call__(self, module: nn.Module, own: Capacity, whole: Capacity) -> nn.Module:
        """Return what a participant of this capacity has of the network; `whole` is the server's capacity."""
        ...


@dataclass(frozen=True)
class Cutting:
    """A factory of a slice of what another factory builds."""

    build: Callable[[], nn.Module]
    cut: Cut
    own: Capacity
    whole: Capacity
    given: Model = field(compare=False, repr=False)  # as it was before it was cut
    costs: dict[tuple[int, ...], float] = field(default_factory=dict, compare=False, repr=False)  # by shape of a row

    def __call__(self) -> nn.Module:
        module = self.build()
        if frozen := sorted(frozen_names(module)):  # they never travel, and slices move
            raise ValueError(f"{frozen[0]} is frozen, and a network of which slices are cut has no frozen parts")
        return self.cut(module, self.own, self.whole)

    def cost(self, row: Tensor) -> float:
        """Return the share of the uncut network's multiplications that the slice needs for a row."""
        key = tuple(row.shape)
        if key not in self.costs:
            whole = self._operations(Capacity(rank=self.whole.rank), row)
            self.costs[key] = self._operations(self.own, row) / whole if whole else 1.0
        return self.costs[key]

    def _operations(self, capacity: Capacity, row: Tensor) -> int:
        with seeded("only to be counted"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.cut(self.build(), capacity, self.whole).eval()(row)
        return int(counter.get_total_flops())
