"""Narrower networks: what a participant has of a wide one, where that lies, and the mean of many slices.

A slice has the first share of each layer's units, rounded up, or those from an offset on. It is a network by itself, of
the same names, and does not know where it lies: whoever has the whole does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from heterophony.kernel.capacity import Capacity, Cut
from heterophony.kernel.node import Node
from heterophony.kernel.work import Named
from heterophony.parts.aggregate import mean
from heterophony.parts.axes import Axes, Places, index


class SliceCut(Cut, Protocol):
    """A cut whose slices lie somewhere in the whole."""

    def places(self, module: nn.Module, own: Capacity, whole: Capacity, offset: int) -> dict[str, Places]:
        """Return where a participant's slice lies in the module of whoever has the whole."""
        ...


@dataclass(frozen=True)
class Narrow:
    """Cuts a network to a width. With `scaler`, layers divide by it, so that their values are as large as in the whole.

    Layers divide in training and in evaluation. Outputs of the network are neither cut nor divided.
    """

    scaler: Annotated[bool, "layers of a slice divide by its width, in training and in evaluation"] = False
    cuts: ClassVar[bool] = True

    def __call__(self, module: nn.Module, own: Capacity, whole: Capacity) -> nn.Module:
        return narrowed(module, own.width, own.width / whole.width if self.scaler else 1.0)

    def places(self, module: nn.Module, own: Capacity, whole: Capacity, offset: int) -> dict[str, Places]:
        """Return where a participant's slice lies in the module of whoever has the whole."""
        return places_of(module, own.width / whole.width, offset)


def places_of(module: nn.Module, share: float, offset: int = 0) -> dict[str, Places]:
    """Return where the slice of such a width lies, of each tensor that has dimensions."""
    if share >= 1:
        tensors = (*module.named_parameters(), *module.named_buffers())
        return {name: (None,) * tensor.dim() for name, tensor in tensors}
    return Axes(module).places(share, offset)


def narrowed(module: nn.Module, share: float, divisor: float = 1.0) -> nn.Module:
    """Make a network narrower, in place, and return it. Inner layers divide by the divisor."""
    if share >= 1 and divisor >= 1:
        return module
    axes = Axes(module)
    places = axes.places(share)
    for path, part in module.named_modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                whole = f"{path}.{name}".lstrip(".")
                if tensor is not None and whole in places:
                    new = tensor.detach()[index(places[whole])].clone()
                    kept = nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
                    tensors[name] = kept
        _resize(part)
        if divisor < 1 and type(part) in _SCALED and axes.narrow(f"{path}.weight".lstrip(".")):
            # A layer gets another class: one more module would change the names of those behind it.
            part.__class__ = _SCALED[type(part)]
            part.share = divisor
    return module


def _resize(part: nn.Module) -> None:
    """Put right what a layer says of its size."""
    weight = getattr(part, "weight", None)
    if isinstance(part, nn.Linear):
        part.out_features, part.in_features = part.weight.shape
    elif isinstance(part, _ConvNd):
        part.out_channels = len(part.weight)
        part.in_channels = part.out_channels if part.groups > 1 else part.weight.shape[1]
        part.groups = part.out_channels if part.groups > 1 else 1
    elif isinstance(part, nn.Embedding):
        part.embedding_dim = part.weight.shape[1]
    elif isinstance(part, nn.LayerNorm) and weight is not None:
        part.normalized_shape = tuple(weight.shape)
    elif isinstance(part, nn.GroupNorm) and weight is not None:
        part.num_channels = len(weight)
    elif isinstance(part, _NormBase) and weight is not None:
        part.num_features = len(weight)


class ScaledLinear(nn.Linear):
    """A linear layer of a slice, whose outputs are divided by its share of the whole."""

    share: float

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.share


class ScaledConv1d(nn.Conv1d):
    """The same of a convolution over steps."""

    share: float

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.share


class ScaledConv2d(nn.Conv2d):
    """The same of a convolution over images."""

    share: float

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.share


_SCALED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: ScaledLinear,
    nn.Conv1d: ScaledConv1d,
    nn.Conv2d: ScaledConv2d,
}


# -- weights ---------------------------------------------------------------------------------------------------------
def taken(tensors: Named, places: Mapping[str, Places]) -> dict[str, Tensor]:
    """Return the slice of named tensors, of those that it has."""
    return {name: tensors[name][index(own)].contiguous() for name, own in places.items() if name in tensors}


def mean_by_coordinate(
    like: Named, slices: Sequence[tuple[Named, Mapping[str, Places]]], shares: Sequence[float] | None = None
) -> dict[str, Tensor]:
    """Return tensors whose entries are means over those who have them. What nobody has stays as in `like`.

    Arguments:
        like: the whole, by name.
        slices: each with where it lies. One that lacks a name does not have that tensor.
        shares: how much each counts; without it, all alike.
    """
    counts = [1.0] * len(slices) if shares is None or not any(shares) else list(shares)
    merged = {}
    for name, own in like.items():
        having = [
            (item[name], places[name], n) for (item, places), n in zip(slices, counts, strict=True) if name in item
        ]
        if all(entry is None for _, places, _ in having for entry in places):  # as any mean, to the bit
            some = [n for _, _, n in having]
            merged[name] = mean([{name: item} for item, _, _ in having], some)[name] if any(some) else own
            continue
        total, weight = torch.zeros_like(own), torch.zeros_like(own)
        for item, places, n in having:
            total[index(places)] += n * item
            weight[index(places)] += n
        merged[name] = torch.where(weight > 0, total / weight.clamp_min(torch.finfo(own.dtype).tiny), own)
    return merged


def output_rows(module: nn.Module) -> frozenset[str]:
    """Return the names of the tensors with a row for each output of a network."""
    return frozenset(Axes(module).outputs)


def rows_of(
    item: Named, places: Mapping[str, Places], outputs: Set[str], labels: Tensor
) -> tuple[dict[str, Tensor], dict[str, Places]]:
    """Return a slice of which only the outputs of some labels count, and where it lies."""
    some, lying = dict(item), dict(places)
    for name in outputs & item.keys():
        rows = torch.unique(labels[labels < len(item[name])])
        if len(rows) < len(item[name]):
            some[name] = item[name][rows]
            lying[name] = (rows, *places[name][1:])
    return some, lying


def by_capacity(node: Node, others: Iterable[str]) -> dict[Capacity, list[str]]:
    """Return other nodes by what they can hold."""
    found: dict[Capacity, list[str]] = {}
    for other in others:
        found.setdefault(node.capacity(other), []).append(other)
    return found
