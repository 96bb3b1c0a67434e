"""BatchNorm: which layers are such, which keep running statistics, and taking these anew from given batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from heterophony.kernel.freezing import is_frozen


def norms(network: nn.Module) -> frozenset[str]:
    """Return the names of all BatchNorm layers."""
    return frozenset(name for name, part in network.named_modules() if isinstance(part, _BatchNorm))


def statistics(network: nn.Module) -> dict[str, Tensor]:
    """Return the running means and variances of all BatchNorm layers, live."""
    found: dict[str, Tensor] = {}
    for name, part in network.named_modules():
        if isinstance(part, _BatchNorm) and part.running_mean is not None and part.running_var is not None:
            before = f"{name}." if name else ""
            found |= {f"{before}running_mean": part.running_mean, f"{before}running_var": part.running_var}
    return found


def running(network: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers that keep running statistics, but for frozen ones."""
    layers = [part for part in network.modules() if isinstance(part, _BatchNorm) and not is_frozen(part)]
    return [layer for layer in layers if layer.running_mean is not None]


def retaken(network: nn.Module, ask: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> None:
    """Replace the running statistics by the plain average over these batches, in which rows count alike.

    `ask` is the network in the precision that it runs in. Only BatchNorm is in training mode: statistics are for
    evaluation, where there is no dropout, and nothing is drawn at random. Modes are put back.
    """
    layers = running(network)
    modes = [(part, part.training) for part in network.modules()]
    momenta = [layer.momentum for layer in layers]
    network.eval()
    try:
        for layer in layers:
            layer.train()
            layer.reset_running_stats()
        seen = 0
        for batch in batches:
            seen += len(batch)
            for layer in layers:
                layer.momentum = len(batch) / seen  # so that the running average is the plain one
            with torch.no_grad():
                ask(batch)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for part, training in modes:
            part.training = training
