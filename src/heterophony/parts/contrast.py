"""Prototypes that a server trains: near to what clients sent for the same class, far from what they sent for others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.kernel.node import Node
from heterophony.kernel.work import Named
from heterophony.parts.classwise import ClassMeans, merged

NEAR = 1e-12  # the least squared distance: a root has no slope at zero


@dataclass(frozen=True)
class Contrast:
    """FedTGP's server: SGD on the contrastive loss with an adaptive margin.

    Each class has a vector of its own. A common network of two layers makes the class's prototype of it. Vectors and
    layers are what is trained; the server's variable "trained" keeps them from round to round.
    """

    epochs: Annotated[int, "passes over what the clients have sent"] = 100
    batch: Annotated[int, "clients' prototypes of a step"] = 32
    lr: Annotated[float, "learning rate"] = 0.01
    margin: Annotated[float, "tau: the largest value of the adaptive margin"] = 100.0

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1 or not self.lr > 0 or not self.margin >= 0:
            given = f"{self.epochs}, {self.batch}, {self.lr} and {self.margin}"
            raise ValueError(f"epochs and margin are numbers >= 0, batch one >= 1 and lr a rate > 0, got {given}")

    def __call__(self, server: Node, tables: Sequence[ClassMeans]) -> ClassMeans:
        """Return a trained prototype for each class that one of the tables has."""
        there = [ClassMeans(table.means, table.counts.clamp(max=1)) for table in tables]
        together = merged(there)
        labels = torch.cat([table.counts.nonzero().flatten() for table in there])
        if not len(labels):
            return together
        sent = torch.cat([table.means[table.counts > 0] for table in there]).double()
        known = server.vars.get("trained") or {}
        if not known or known["vectors"].shape != together.means.shape:
            known = fresh(len(together.means), together.means.shape[1], server.rng("prototypes"))
        margin = min(gap(together), self.margin)
        trained = self._trained(known, sent, labels, margin, server.rng("batches"))
        made = prototypes(trained) * (together.counts > 0).unsqueeze(1)
        if not torch.isfinite(made).all():  # diverged: means serve, and the next round begins anew
            server.vars["trained"] = {}
            return together
        server.vars["trained"] = trained
        return ClassMeans(made, together.counts)

    def _trained(
        self, known: Named, sent: Tensor, labels: Tensor, margin: float, draw: torch.Generator
    ) -> dict[str, Tensor]:
        """Return vectors and layers after `epochs` passes of SGD over what was sent."""
        weights = {name: tensor.double().requires_grad_() for name, tensor in known.items()}
        for _ in range(self.epochs):
            order = torch.randperm(len(labels), generator=draw)
            for rows in torch.split(order, self.batch):
                with torch.enable_grad():
                    loss = contrast(sent[rows], prototypes(weights), labels[rows], margin)
                    slopes = torch.autograd.grad(loss, list(weights.values()))
                with torch.no_grad():
                    for weight, slope in zip(weights.values(), slopes, strict=True):
                        weight -= self.lr * slope
        return {name: tensor.detach().float() for name, tensor in weights.items()}


def contrast(sent: Tensor, made: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Return the contrastive loss: cross-entropy over negative Euclidean distances, mean over what was sent.

    The margin is added to the distance from the own class's prototype.
    """
    squared = (sent.unsqueeze(1) - made).square().sum(-1)
    apart = squared.clamp_min(NEAR).sqrt()
    own = F.one_hot(labels, len(made))
    return F.cross_entropy(-(apart + margin * own), labels)


def gap(centres: ClassMeans) -> float:
    """Return the largest distance between the centres of two classes; 0 without a class."""
    held = centres.means[centres.counts > 0].double()
    if not len(held):
        return 0.0
    return float(torch.cdist(held, held, compute_mode="donot_use_mm_for_euclid_dist").max())


def prototypes(weights: dict[str, Tensor]) -> Tensor:
    """Return a prototype for each class: two linear layers, with ReLU between them, on the class's own vector."""
    inner = (weights["vectors"] @ weights["inner"].T + weights["inner bias"]).relu()
    return inner @ weights["outer"].T + weights["outer bias"]


def fresh(classes: int, width: int, draw: torch.Generator) -> dict[str, Tensor]:
    """Return what a server begins with: vectors from a normal distribution, and layers as torch begins them."""
    shapes = {"inner": (width, width), "inner bias": (width,), "outer": (width, width), "outer bias": (width,)}
    most = 1 / math.sqrt(max(1, width))
    layers = {}
    for name, shape in shapes.items():
        layers[name] = torch.empty(shape).uniform_(-most, most, generator=draw)
    return {"vectors": torch.randn(classes, width, generator=draw), **layers}
