"""A server's network over features that clients send, and how it learns from them (FedGKT).

Such rows are no view of the server's data: they are there for one round. So the server trains here, in the order of
its own draw, and not by a `Fit`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from heterophony.data.table import Data
from heterophony.kernel.node import Node
from heterophony.kernel.terms import named_terms, sum_of
from heterophony.kernel.work import Fit, Loss
from heterophony.parts.features import head_of
from heterophony.parts.training import Training

WIDTH, DEPTH = 512, 3


class DeepHead(nn.Module):
    """Hidden layers over the features of a network of two parts, body and head, of which it takes only the sizes."""

    def __init__(self, edge: nn.Module) -> None:
        super().__init__()
        head = head_of(edge, "FedGKT")
        layers: list[nn.Module] = []
        width = head.in_features
        for _ in range(DEPTH):
            layers += [nn.Linear(width, WIDTH), nn.ReLU()]
            width = WIDTH
        self.layers = nn.Sequential(*layers, nn.Linear(width, head.out_features))

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.layers(features)
        return logits


def readable(network: nn.Module, features: Tensor, logits: Tensor, labels: Tensor) -> bool:
    """Return whether a network reads such features, and has such logits and labels for outputs."""
    first = next(network.parameters())
    if not len(labels) or features.dtype != first.dtype or logits.dtype != first.dtype:
        return False
    try:
        with torch.no_grad():
            classes = network.eval()(features[:1].to(first.device)).shape[-1]
    except RuntimeError:  # of another width
        return False
    return bool(logits.shape[1] == classes and int(labels.max()) < classes)


def study(node: Node, how: Training, loss: Loss, rows: Data) -> Tensor:
    """Train a node's network on rows that it was sent, and return what it then says of them.

    Args:
        node: whose network "model" it is.
        how: epochs or steps, batches and optimiser.
        loss: as of a `Fit`.
        rows: what the network reads, and what the loss asks for.
    """
    network, draw = node.models["model"], node.rng("study")
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    optimiser = how.built_at(node).plain(weights)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=draw)))  # dropout draws from torch's own generator
        network.train()
        for chosen in _batches(node, how, len(rows), draw):
            told = loss({"model": network}, rows.take(chosen).placed(node.device))
            slopes = torch.autograd.grad(sum_of(named_terms(told, "model")), weights)
            for weight, slope in zip(weights, slopes, strict=True):
                weight.grad = slope
            optimiser.step()
    for weight in weights:
        weight.grad = None
    network.eval()
    with torch.no_grad():
        return torch.cat([network(part.to(node.device)).cpu() for part in torch.split(rows.x, 512)])


def _batches(node: Node, how: Training, rows: int, draw: torch.Generator) -> Iterator[Tensor]:
    """Yield the row numbers of each step."""
    epochs, steps, batch, _ = how.at(node)
    sizes = Fit((), _nothing, epochs=epochs, steps=steps, batch=batch, rows=torch.arange(rows)).sizes(node)
    while sizes:
        order, at = torch.randperm(rows, generator=draw), 0
        while sizes and at + sizes[0] <= rows:
            size = sizes.pop(0)
            yield order[at : at + size]
            at += size


def _nothing(*_: object) -> None:
    """Stand for the loss of an order of which only the batches are asked for."""
