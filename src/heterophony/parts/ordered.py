"""Ordered dropout: in each step of training a network acts as a narrower slice of itself, of a width that is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from heterophony.data.table import Data
from heterophony.kernel.capacity import Capacity
from heterophony.parts.axes import Axes, CannotSlice, Places
from heterophony.parts.losses import Nets, ce, kl
from heterophony.parts.slices import narrowed, places_of


@dataclass(frozen=True)
class Order:
    """Cuts a network to a width, and has it drop units in order while it trains.

    `levels` are the widths that are drawn, as shares of the whole; a client draws among those it can hold.
    """

    levels: Annotated[tuple[float, ...], "widths that are drawn in training, as shares of the whole"] = (
        0.25,
        0.5,
        0.75,
        1.0,
    )
    cuts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.levels or not all(0 < level <= 1 for level in self.levels):
            raise ValueError(f"levels are widths in (0, 1], got {list(self.levels)}")

    def __call__(self, module: nn.Module, own: Capacity, whole: Capacity) -> nn.Module:
        if any(isinstance(part, nn.LayerNorm | nn.GroupNorm) for part in module.modules()):
            raise CannotSlice("units cannot be dropped in order before a LayerNorm or a GroupNorm, which sees all")
        drawn = sorted({min(level, own.width) for level in self.levels if level < own.width} | {own.width})
        axes = Axes(module)
        limits = {name: [_kept(axes, name, level) for level in drawn] for name in axes.of}
        return Ordered(narrowed(module, own.width), limits, len(drawn))

    def places(self, module: nn.Module, own: Capacity, whole: Capacity, offset: int) -> dict[str, Places]:
        assert isinstance(module, Ordered)
        inner = places_of(module.inner, own.width / whole.width, offset)
        return {f"inner.{name}": places for name, places in inner.items()}


def _kept(axes: Axes, name: str, level: float) -> tuple[int, ...]:
    """Return how many entries of each of the first two dimensions a slice of such a width has."""
    found = []
    for units, size in zip(axes.of[name], axes.shapes[name], strict=True):
        alive = units is not None and axes.cut(units)
        found.append(math.ceil(level * units.many) * units.entries if units is not None and alive else size)
    return tuple(found)


class Ordered(nn.Module):
    """A network that, while it trains, gives the outputs of itself and of a slice of a width that is drawn.

    Entries beyond the slice count as zero, which makes it the slice. The width is drawn once for each batch, from
    torch's generator, as dropout draws.
    """

    def __init__(self, inner: nn.Module, limits: Mapping[str, list[tuple[int, ...]]], levels: int) -> None:
        super().__init__()
        self.inner, self.levels = inner, levels
        names = [name for name, _ in inner.named_parameters()]
        self.limits = {name: tuple(limits[name]) for name in names if name in limits}

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if not self.training:
            whole: Tensor = self.inner(x)
            return whole
        weights = dict(self.inner.named_parameters())
        device = next(iter(weights.values())).device
        drawn = torch.randint(self.levels, (1,), device=device)
        masked = {name: self._masked(name, weight, drawn) for name, weight in weights.items()}
        return self.inner(x), functional_call(self.inner, masked, (x,))

    def _masked(self, name: str, weight: Tensor, drawn: Tensor) -> Tensor:
        if name not in self.limits:
            return weight
        limits = torch.tensor(self.limits[name], device=weight.device)[drawn][0]
        for dimension in range(min(2, weight.dim())):
            own = torch.arange(weight.shape[dimension], device=weight.device) < limits[dimension]
            weight = weight * own.view(-1, *[1] * (weight.dim() - 1 - dimension)).to(weight.dtype)
        return weight


@dataclass(frozen=True)
class Distilled:
    """FjORD's loss: cross-entropy of the widest, and of the drawn slice the distance from the widest.

    With `share` 0 the slice learns from the labels alone.
    """

    share: float = 1.0

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        found: Any = nets["model"](batch.x)
        if not isinstance(found, tuple):
            return {"model": {"ce": ce(found, batch.y)}}
        widest, drawn = found
        terms = {"ce": ce(widest, batch.y), "kl": self.share * kl(widest, drawn)}
        if self.share < 1:
            terms["slice"] = (1 - self.share) * ce(drawn, batch.y)
        return {"model": terms}
