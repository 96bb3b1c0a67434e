"""Networks and steps through `torch.compile`, which a capture then records like anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

FORMS = 10_000


def compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step compiled, whole, for each form of its arguments apart: these are few, and a graph has one of them.

    To torch the steps of all stacks, and the networks of a class, are one function, of which it would compile eight
    forms and then, without a word, no more.
    """
    made = torch.compile(step, fullgraph=True, dynamic=False)

    def call(*args: Any) -> Any:
        with torch._dynamo.config.patch(recompile_limit=FORMS, accumulated_recompile_limit=FORMS):
            return made(*args)

    return call


def in_batches_of(batch: int, network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A network that is compiled for whole batches, or several together.

    Each participant's last batch has another size; compiling for all of them would never be earned back.
    """
    made = compiled(network)

    def ask(x: Tensor) -> Tensor:
        out: Tensor = (network if len(x) % batch else made)(x)
        return out

    return ask


def without_dropout(network: nn.Module) -> nn.Module:
    """The network, in place, without dropout: for comparing what it computes."""
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
    return network
