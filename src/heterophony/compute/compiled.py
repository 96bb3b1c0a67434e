"""Networks and steps through `torch.compile`, which a capture then records like anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

FORMS = 10_000


def compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the step, compiled whole for each form of its arguments. These are few, and a graph has one of them.

    Torch takes the steps of all stacks, and all networks of a class, for one function. It would compile eight forms of
    it and then, without a word, no more; so the limit is raised.
    """
    made = torch.compile(step, fullgraph=True, dynamic=False)

    def call(*args: Any) -> Any:
        with torch._dynamo.config.patch(recompile_limit=FORMS, accumulated_recompile_limit=FORMS):
            return made(*args)

    return call


def in_batches_of(batch: int, network: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a network that is compiled for whole batches, or several together, and runs as it is on all others.

    Each participant's last batch has another size. Compiling for all of these sizes would never be earned back.
    """
    made = compiled(network)

    def ask(x: Tensor) -> Tensor:
        out: Tensor = (network if len(x) % batch else made)(x)
        return out

    return ask


def without_dropout(network: nn.Module) -> nn.Module:
    """Turn a network's dropout off, in place, so that what it computes can be compared; return it."""
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.p = 0.0
    return network
