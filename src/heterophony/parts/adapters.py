"""Low-rank adapters (LoRA) on the linear and convolutional layers of any network, and what becomes of many of them.

A layer with weight W gets two factors, `down` (rank, inputs) and `up` (outputs, rank), and computes with
W + scale * up @ down. W itself is frozen. Adapters of a lower rank are the first ranks of those of a higher one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd

from heterophony.kernel.capacity import Capacity
from heterophony.kernel.freezing import freeze_alone
from heterophony.kernel.work import Named
from heterophony.parts.axes import CannotSlice, Places, index

SIDES = ("down", "up")


@dataclass(frozen=True)
class Adapt:
    """Puts adapters of a participant's rank on a network, and freezes everything else.

    `rank` is that of whoever has none of its own. `scale` does not depend on the rank. `also` names sub-modules that
    are trained as a whole, and travel, such as a head that is new. `train` says which factors are trained.
    """

    rank: Annotated[int, "of whoever has no rank of its own"] = 8
    scale: Annotated[float, "what an adapter's product is multiplied by; it does not depend on the rank"] = 1.0
    also: Annotated[tuple[str, ...], "sub-modules that are trained as a whole, and travel"] = ()
    train: Annotated[tuple[str, ...], "which factors are trained"] = SIDES
    cuts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.scale > 0:
            raise ValueError(f"adapters need a rank >= 1 and a scale > 0, got {self.rank} and {self.scale}")

    def __call__(self, module: nn.Module, own: Capacity, whole: Capacity) -> nn.Module:
        highest = max(own.rank or self.rank, whole.rank or self.rank)
        made = adapted(module, highest, self.scale, self.also)
        _keep(made, own.rank or self.rank)
        for side in set(SIDES) - set(self.train):
            for name, parameter in made.named_parameters():
                if is_factor(name, side):
                    parameter.requires_grad_(False)
        return made


def adapted(module: nn.Module, rank: int, scale: float = 1.0, also: Collection[str] = ()) -> nn.Module:
    """Put adapters on all linear and convolutional layers of a network, in place, and return it.

    Everything else is frozen, but for the sub-modules of `also`. Factors called `up` are zero, so that at first the
    network is what it was; those called `down` are drawn from torch's generator, evenly within one over the root of the
    inputs.
    """
    parts = dict(module.named_modules())
    for path in also:
        if path not in parts:
            raise CannotSlice(f"also names {path!r}, and the network has no such part")
    rest = {path: part for path, part in parts.items() if not _inside(path, also)}
    layers = {path: part for path, part in rest.items() if _kind(part) is not None}
    if not layers:
        raise CannotSlice("adapters need a linear or convolutional layer, and the network has none")
    for path, part in rest.items():
        if path not in layers and (part._parameters or part._buffers):
            freeze_alone(part)
    for part in layers.values():
        _adapt(part, rank, scale)
    return module


def _inside(path: str, also: Collection[str]) -> bool:
    """Return whether a sub-module is one of these, or lies in one."""
    return any(f"{path}.".startswith(f"{each}.") for each in also)


def _adapt(layer: nn.Module, rank: int, scale: float) -> None:
    """Give a layer its factors, and the class that computes with them: one more module would change names."""
    kind = _kind(layer)
    assert kind is not None
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    weight: Tensor = layer.weight  # type: ignore[assignment]
    rows, columns = kind.sizes(weight)
    own = min(rank, rows, columns)
    bound = 1 / math.sqrt(columns)
    made: Any = layer
    made.down = nn.Parameter(weight.new_empty(own, columns).uniform_(-bound, bound))
    made.up = nn.Parameter(weight.new_zeros(rows, own))
    made.scale = scale
    made.__class__ = kind


def _keep(module: nn.Module, rank: int) -> None:
    """Keep the first ranks of all adapters."""
    for part in module.modules():
        if isinstance(part, ADAPTED):
            part.down = nn.Parameter(part.down.detach()[:rank].clone())
            part.up = nn.Parameter(part.up.detach()[:, :rank].clone())


# -- layers ----------------------------------------------------------------------------------------------------------
class AdaptedLinear(nn.Linear):
    """A linear layer with an adapter."""

    down: nn.Parameter
    up: nn.Parameter
    scale: float

    @staticmethod
    def sizes(weight: Tensor) -> tuple[int, int]:
        return weight.shape[0], weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.scale * F.linear(F.linear(x, self.down), self.up)
        return super().forward(x) + change


class AdaptedConv1d(nn.Conv1d):
    """A convolution over steps with an adapter: a narrow convolution, then one of kernel size one."""

    down: nn.Parameter
    up: nn.Parameter
    scale: float

    @staticmethod
    def sizes(weight: Tensor) -> tuple[int, int]:
        return weight.shape[0], weight[0].numel()

    def forward(self, x: Tensor) -> Tensor:
        change = (self.scale * (self.up @ self.down)).view_as(self.weight)
        outputs: Tensor = self._conv_forward(x, self.weight + change, self.bias)
        return outputs


class AdaptedConv2d(nn.Conv2d):
    """The same of a convolution over images."""

    down: nn.Parameter
    up: nn.Parameter
    scale: float

    @staticmethod
    def sizes(weight: Tensor) -> tuple[int, int]:
        return weight.shape[0], weight[0].numel()

    def forward(self, x: Tensor) -> Tensor:
        change = (self.scale * (self.up @ self.down)).view_as(self.weight)
        outputs: Tensor = self._conv_forward(x, self.weight + change, self.bias)
        return outputs


class AdaptedTransposed(nn.Module):
    """The linear layer of GPT-2 in `transformers`, whose weight is (inputs, outputs), with an adapter."""

    weight: nn.Parameter
    bias: nn.Parameter
    down: nn.Parameter
    up: nn.Parameter
    scale: float

    @staticmethod
    def sizes(weight: Tensor) -> tuple[int, int]:
        return weight.shape[1], weight.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.scale * F.linear(F.linear(x, self.down), self.up)
        return x @ self.weight + self.bias + change


Adapted = AdaptedLinear | AdaptedConv1d | AdaptedConv2d | AdaptedTransposed
ADAPTED = (AdaptedLinear, AdaptedConv1d, AdaptedConv2d, AdaptedTransposed)
_KINDS: dict[type[nn.Module], type[Adapted]] = {
    nn.Linear: AdaptedLinear,
    nn.Conv1d: AdaptedConv1d,
    nn.Conv2d: AdaptedConv2d,
}


def _kind(layer: nn.Module) -> type[Adapted] | None:
    """Return the class that a layer gets with an adapter; None: it gets none."""
    if type(layer).__name__ == "Conv1D" and type(layer).__module__ == "transformers.pytorch_utils":
        return AdaptedTransposed
    if isinstance(layer, _ConvNd) and layer.padding_mode != "zeros":
        return None
    return _KINDS.get(type(layer))


def merge_into_base(module: nn.Module, factors: Named) -> None:
    """Add the products of some factors, of any ranks, to the frozen weights of a network with adapters."""
    with torch.no_grad():
        for path, part in module.named_modules():
            if isinstance(part, ADAPTED):
                down, up = (factors[f"{path}.{side}".lstrip(".")].to(part.weight) for side in SIDES)
                change = part.scale * (up @ down)
                part.weight += (change.T if isinstance(part, AdaptedTransposed) else change).view_as(part.weight)


# -- factors ---------------------------------------------------------------------------------------------------------
def is_factor(name: str, side: str) -> bool:
    """Return whether a tensor is this factor of an adapter."""
    return name.rpartition(".")[2] == side


def layers_of(factors: Iterable[str]) -> list[str]:
    """Return the layers whose factors these are, each once, as the beginning of a name."""
    return [name.removesuffix("up") for name in factors if is_factor(name, "up")]


def cut_to(factors: Named, rank: int) -> dict[str, Tensor]:
    """Return the first ranks of factors; other tensors are as they are."""
    return {name: tensor[index(ranks(name, tensor, rank))].contiguous() for name, tensor in factors.items()}


def ranks(name: str, tensor: Tensor, rank: int) -> Places:
    """Return where a factor of this rank lies in one of as high a rank, or a higher one."""
    if is_factor(name, "down") and rank < len(tensor):
        return torch.arange(rank), None
    if is_factor(name, "up") and rank < tensor.shape[1]:
        return None, torch.arange(rank)
    return (None,) * tensor.dim()


def padded(factors: Named, like: Named) -> dict[str, Tensor]:
    """Return factors with zeros in the place of the ranks that they lack."""
    found = {}
    for name, tensor in factors.items():
        made = torch.zeros_like(like[name])
        made[tuple(slice(size) for size in tensor.shape)] = tensor
        found[name] = made
    return found


def products(factors: Named) -> dict[str, Tensor]:
    """Return by layer what two factors come to, without the scale."""
    return {layer: factors[f"{layer}up"] @ factors[f"{layer}down"] for layer in layers_of(factors)}


def factored(changes: Named, like: Named) -> dict[str, Tensor]:
    """Return the factors of the ranks in `like` that are nearest to these products. Singular values are shared evenly.

    They are computed in double precision on the CPU, where they repeat to the bit.
    """
    found = {}
    for layer, matrix in changes.items():
        rank = len(like[f"{layer}down"])
        left, values, right = torch.linalg.svd(matrix.double().cpu(), full_matrices=False)
        roots = values[:rank].sqrt()
        found[f"{layer}up"] = (left[:, :rank] * roots).to(matrix)
        found[f"{layer}down"] = (roots[:, None] * right[:rank]).to(matrix)
    return found


def stacked(items: Sequence[Named], shares: Sequence[float]) -> dict[str, Tensor]:
    """Return factors whose product is the mean of all products: those of all, one behind the other."""
    total, found = sum(shares), {}
    for layer in layers_of(items[0]):
        found[f"{layer}down"] = torch.cat([item[f"{layer}down"] for item in items])
        weighed = [item[f"{layer}up"] * (share / total) for item, share in zip(items, shares, strict=True)]
        found[f"{layer}up"] = torch.cat(weighed, 1)
    return found


def strength(factors: Named) -> float:
    """Return the Frobenius norm of all products together."""
    return float(sum(product.square().sum() for product in products(factors).values()) ** 0.5)
