"""A model's weights as the sum of two halves, sigma and psi (FedMatch)."""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony.kernel.node import Node
from heterophony.kernel.work import Named


def added(sigma: Named, psi: Named) -> dict[str, Tensor]:
    """Return the weights theta = sigma + psi."""
    return {name: sigma[name] + psi[name] for name in sigma}


def sigma_of(node: Node, psi: Named) -> dict[str, Tensor]:
    """Return the model's weights without psi. Buffers are no sums: psi has all of them."""
    learnt = dict(node.models["model"].named_parameters())
    sigma = {}
    for name, weight in node.weights().items():
        sigma[name] = weight - psi[name] if name in learnt else torch.zeros_like(weight)
    return sigma


def psi_of(node: Node, sigma: Named) -> dict[str, Tensor]:
    """Return the model's weights without sigma."""
    return {name: w - sigma[name] for name, w in node.weights().items()}
