"""Units of layers that do the same in different networks are found, and put in one order (matched averaging).

A hidden layer's units may stand in any order: a network whose units change places, and with them the inputs of the next
layer, says the same. So the mean of two networks means little until equal units stand at equal places.

Reference: Wang, Yurochkin, Sun, Papailiopoulos and Khazaeni, Federated Learning with Matched Averaging, ICLR 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from heterophony.data.errors import DataError
from heterophony.kernel.work import Named


@dataclass(frozen=True)
class Layer:
    """Names of the tensors that have a row for each unit: the weights that read, and a bias or a norm behind them."""

    weight: str
    tensors: tuple[str, ...]


def chain(module: nn.Module, names: Sequence[str]) -> list[Layer]:
    """Return a network's layers, one behind the other; a norm belongs to the layer before it."""
    found: list[tuple[str, list[str]]] = []
    for place, part in module.named_modules():
        own = [name for name in names if name.rpartition(".")[0] == place]
        if isinstance(part, nn.Linear | _ConvNd):
            if getattr(part, "groups", 1) != 1 or getattr(part, "transposed", False):
                raise ValueError(f"{place} has groups or is transposed: units can be matched in plain layers only")
            weight = f"{place}.weight" if place else "weight"
            if weight not in own:
                raise ValueError(f"{weight} is frozen or does not travel: units can be matched in whole networks only")
            found.append((weight, own))
        elif own and not found:
            raise ValueError(f"{place} has weights, and no layer before it has units: units cannot be matched")
        elif own:
            found[-1][1].extend(own)
    return [Layer(weight, tuple(tensors)) for weight, tensors in found]


def reordered(weights: Named, layers: Sequence[Layer], number: int, order: Tensor) -> dict[str, Tensor]:
    """Return weights in which a hidden layer's unit i is the former unit order[i]. They say the same as before."""
    made = dict(weights)
    for name in layers[number].tensors:
        made[name] = made[name][order]
    then = layers[number + 1].weight
    shape, units = made[then].shape, len(order)
    if shape[1] % units:
        raise ValueError(f"{then} reads {shape[1]} numbers of {units} units: units can be matched in a chain only")
    blocks = made[then].reshape(shape[0], units, shape[1] // units, *shape[2:])
    made[then] = blocks[:, order].reshape(shape)
    return made


def units(weights: Named, layer: Layer) -> Tensor:
    """Return what tells a layer's units apart, a row for each: what they read, and the bias."""
    tables = [weights[name].detach().double().flatten(1) for name in layer.tensors if weights[name].dim() > 1]
    biases = [weights[name].detach().double().unsqueeze(1) for name in layer.tensors if name.endswith("bias")]
    return torch.cat([*tables, *biases], 1).cpu()  # where they are matched


def orders(tables: Sequence[Tensor], shares: Sequence[float], sweeps: int) -> list[Tensor]:
    """Return for each table in which order its rows are nearest to those of the others' mean, all together.

    The one with the largest share keeps its order. The others are matched with the mean of those before them, then,
    `sweeps` times, each with the mean of all others.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise DataError("fedma matches units with scipy: pip install 'heterophony[data]'") from error
    first = max(range(len(tables)), key=lambda i: shares[i])
    found: dict[int, Tensor] = {first: torch.arange(len(tables[first]))}

    def match(i: int) -> None:
        others = [(tables[j][order], max(shares[j], 1e-12)) for j, order in found.items() if j != i]
        total = sum(share for _, share in others)
        mean = torch.stack([table * (share / total) for table, share in others]).sum(0)
        found[i] = torch.from_numpy(linear_sum_assignment(torch.cdist(mean, tables[i]).square().numpy())[1])

    for i in range(len(tables)):
        if i != first:
            match(i)
    for _ in range(sweeps):
        for i in range(len(tables)):
            if i != first:
                match(i)
    return [found[i] for i in range(len(tables))]
