"""Networks with an exit behind each block, of which a participant has the first blocks; losses by which exits teach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from heterophony.data.table import Data
from heterophony.kernel.capacity import Capacity
from heterophony.parts.axes import CannotSlice, Places
from heterophony.parts.losses import Nets, ce, kl
from heterophony.parts.slices import narrowed, places_of


@dataclass(frozen=True)
class Shallow:
    """Puts an exit behind each of so many `blocks` of a network, and cuts it to a depth.

    In evaluation outputs are the mean over all exits, or those of the last one.
    """

    blocks: Annotated[int, "parts of the body, each of which has an exit behind it"] = 4
    ensemble: Annotated[bool, "in evaluation outputs are the mean over all exits; else those of the last"] = True
    cuts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_blocks(self.blocks)

    def __call__(self, module: nn.Module, own: Capacity, whole: Capacity) -> nn.Module:
        return with_exits(module, self.blocks, self.ensemble).first(own.depth)

    def places(self, module: nn.Module, own: Capacity, whole: Capacity, offset: int) -> dict[str, Places]:
        """Return where the slice lies: in the whole of the first blocks' tensors."""
        return first(places_of(module, 1.0), own.depth)


@dataclass(frozen=True)
class Compound:
    """Cuts a network with exits to a depth and to a width (`ScaleFL`). In evaluation the last exit counts."""

    blocks: Annotated[int, "parts of the body, each of which has an exit behind it"] = 4
    scaler: Annotated[bool, "layers of a slice divide by its width"] = False
    cuts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_blocks(self.blocks)

    def __call__(self, module: nn.Module, own: Capacity, whole: Capacity) -> nn.Module:
        made = with_exits(module, self.blocks, ensemble=False)
        narrowed(made, own.width, own.width / whole.width if self.scaler else 1.0)
        return made.first(own.depth)

    def places(self, module: nn.Module, own: Capacity, whole: Capacity, offset: int) -> dict[str, Places]:
        """Return where the slice lies: in the first blocks, at the first units."""
        return first(places_of(module, own.width / whole.width, offset), own.depth)


def _check_blocks(blocks: int) -> None:
    if blocks < 2:
        raise ValueError(f"blocks is a number >= 2, got {blocks}")


def first(places: dict[str, Places], depth: int | None) -> dict[str, Places]:
    """Return the tensors of the first blocks, and of their exits."""
    return {name: own for name, own in places.items() if depth is None or int(name.split(".")[1]) < depth}


# -- networks --------------------------------------------------------------------------------------------------------
class Exits(nn.Module):
    """Blocks with an exit behind each. While it trains it gives the outputs of all exits, one after the other."""

    def __init__(self, blocks: Iterable[nn.Module], exits: Iterable[nn.Module], ensemble: bool) -> None:
        super().__init__()
        self.blocks, self.exits, self.ensemble = nn.ModuleList(blocks), nn.ModuleList(exits), ensemble

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        found = []
        for block, way_out in zip(self.blocks, self.exits, strict=True):
            x = block(x)
            found.append(way_out(x))
        if self.training:
            return tuple(found)
        return torch.stack(found).mean(0) if self.ensemble else found[-1]

    def first(self, depth: int | None) -> Exits:
        """Keep the first blocks only."""
        self.blocks, self.exits = self.blocks[:depth], self.exits[:depth]
        return self


class Exit(nn.Module):
    """A linear layer on the mean over all places of a map."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.unsqueeze(-1).flatten(2).mean(2))
        return logits


def with_exits(module: nn.Module, blocks: int, ensemble: bool) -> Exits:
    """Return a network of a body and a head as blocks with exits. The last exit is its own head."""
    body, head = getattr(module, "body", None), getattr(module, "head", None)
    if not isinstance(body, nn.Sequential) or not isinstance(head, nn.Linear):
        raise CannotSlice("exits need a network of a `body`, a torch.nn.Sequential, and a `head`, a torch.nn.Linear")
    parts = _blocks(body, blocks)
    exits = [Exit(_channels(part), head.out_features) for part in parts[:-1]]
    return Exits([nn.Sequential(*part) for part in parts], [*exits, head], ensemble)


def _blocks(body: nn.Sequential, many: int) -> list[list[nn.Module]]:
    """Return the layers of a body in groups of about as many layers with weights. A block ends with a map or a row."""
    layers = list(body)
    weighted = [i for i, layer in enumerate(layers) if any(_is_weighted(part) for part in layer.modules())]
    if len(weighted) < many:
        raise CannotSlice(f"its body has {len(weighted)} layers with weights, which make no {many} blocks: fewer")
    starts = [weighted[len(weighted) * place // many] for place in range(1, many)]
    for place, start in enumerate(starts):  # what makes a row of a map goes with what reads it
        while start and isinstance(layers[start - 1], nn.Flatten):
            start -= 1
        starts[place] = start
    ends = [*starts, len(layers)]
    return [layers[start:end] for start, end in zip([0, *starts], ends, strict=True)]


def _is_weighted(part: nn.Module) -> bool:
    return isinstance(part, nn.Linear | _ConvNd | nn.Embedding)


def _channels(block: Sequence[nn.Module]) -> int:
    """Return how many channels a block's map has: those of its last layer that says so."""
    found = 0
    for layer in block:
        for part in layer.modules():
            if isinstance(part, nn.Linear):
                found = part.out_features
            elif isinstance(part, _ConvNd):
                found = part.out_channels
            elif isinstance(part, _NormBase):
                found = part.num_features
            elif isinstance(part, nn.Embedding):
                found = part.embedding_dim
    return found


# -- losses ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MutualExits:
    """DepthFL's loss: each exit's cross-entropy, and its mean distance from each other exit, with this weight."""

    weight: float = 1.0

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        exits = exits_of(nets["model"](batch.x))
        terms = {"ce": sum_of([ce(own, batch.y) for own in exits])}
        if len(exits) > 1 and self.weight:
            pairs = [kl(exits[j], exits[i]) for i in range(len(exits)) for j in range(len(exits)) if i != j]
            terms["kl"] = self.weight * sum_of(pairs) / (len(exits) - 1)
        return {"model": terms}


@dataclass(frozen=True)
class FromTheLast:
    """ScaleFL's loss: the last exit learns from labels, and the others from labels and from the last one.

    Exit j counts as j. `share` is that of the distance, which is of outputs softened by `temperature`.
    """

    share: float = 0.1
    temperature: float = 3.0

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        exits = exits_of(nets["model"](batch.x))
        counts = [(j + 1) / (len(exits) * (len(exits) + 1) / 2) for j in range(len(exits))]
        shares = [1 - self.share] * (len(exits) - 1) + [1.0]
        task = [n * share * ce(own, batch.y) for n, share, own in zip(counts, shares, exits, strict=True)]
        terms = {"ce": sum_of(task)}
        if len(exits) > 1 and self.share:
            t = self.temperature
            apart = [n * t**2 * kl(exits[-1] / t, own / t) for n, own in zip(counts, exits[:-1], strict=False)]
            terms["kl"] = self.share * sum_of(apart)
        return {"model": terms}


def exits_of(outputs: Any) -> tuple[Tensor, ...]:
    """Return the outputs of all exits, also where there is one."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def sum_of(terms: Sequence[Tensor]) -> Tensor:
    """Return the sum of some terms, at least one."""
    return torch.stack(list(terms)).sum()
