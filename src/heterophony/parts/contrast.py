"""Prototypes that a server trains: near those of their class that clients have sent, away from those of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.kernel.node import Node
from heterophony.parts.classwise import Table, merged

NEAR = 1e-12  # of squared distances: a root has no slope at zero


@dataclass(frozen=True)
class Contrast:
    """FedTGP's server: SGD on the adaptive-margin-enhanced contrastive loss, with what it has learnt kept in "trained".

    A prototype is what a common network of two layers makes of its class's own vector.
    """

    epochs: int = 100  # over what the clients have sent
    batch: int = 32  # clients' prototypes of a step
    lr: float = 0.01
    margin: float = 100.0  # tau: the most that the adaptive margin may be

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1 or not self.lr > 0 or not self.margin >= 0:
            given = f"{self.epochs}, {self.batch}, {self.lr} and {self.margin}"
            raise ValueError(f"epochs and margin are numbers >= 0, batch one >= 1 and lr a rate > 0, got {given}")

    def __call__(self, server: Node, tables: Sequence[Table]) -> Table:
        """A trained prototype for each class that one of the tables has."""
        there = [Table(table.means, table.counts.clamp(max=1)) for table in tables]
        together = merged(there)
        labels = torch.cat([table.counts.nonzero().flatten() for table in there])
        if not len(labels):
            return together
        sent = torch.cat([table.means[table.counts > 0] for table in there]).double()
        known = server.vars.get("trained") or {}
        if not known or known["vectors"].shape != together.means.shape:
            known = fresh(len(together.means), together.means.shape[1], server.rng("prototypes"))
        margin, draw = min(gap(together), self.margin), server.rng("batches")
        weights = {name: tensor.double().requires_grad_() for name, tensor in known.items()}
        with torch.enable_grad():
            for _ in range(self.epochs):
                for rows in torch.split(torch.randperm(len(labels), generator=draw), self.batch):
                    loss = contrast(sent[rows], prototypes(weights), labels[rows], margin)
                    slopes = torch.autograd.grad(loss, list(weights.values()))
                    with torch.no_grad():
                        for weight, slope in zip(weights.values(), slopes, strict=True):
                            weight -= self.lr * slope
        trained = {name: tensor.detach().float() for name, tensor in weights.items()}
        made = prototypes(trained) * (together.counts > 0).unsqueeze(1)
        if not torch.isfinite(made).all():  # diverged: means serve, and the next round begins anew
            server.vars["trained"] = {}
            return together
        server.vars["trained"] = trained
        return Table(made, together.counts)


def contrast(sent: Tensor, made: Tensor, labels: Tensor, margin: float) -> Tensor:
    """-log softmax of negative Euclidean distances, the own class's with the margin on it; mean over what was sent."""
    apart = (sent.unsqueeze(1) - made).square().sum(-1).clamp_min(NEAR).sqrt()
    return F.cross_entropy(-(apart + margin * F.one_hot(labels, len(made))), labels)


def gap(centres: Table) -> float:
    """The largest distance between the centres of two classes."""
    held = centres.means[centres.counts > 0].double()
    return float(torch.cdist(held, held, compute_mode="donot_use_mm_for_euclid_dist").max()) if len(held) else 0.0


def prototypes(weights: dict[str, Tensor]) -> Tensor:
    """One a class: two fully connected layers, ReLU between them, on the class's own vector."""
    inner = (weights["vectors"] @ weights["inner"].T + weights["inner bias"]).relu()
    return inner @ weights["outer"].T + weights["outer bias"]


def fresh(classes: int, width: int, draw: torch.Generator) -> dict[str, Tensor]:
    """Normal vectors, layers as torch begins them."""
    shapes = {"inner": (width, width), "inner bias": (width,), "outer": (width, width), "outer bias": (width,)}
    most = 1 / math.sqrt(max(1, width))
    layers = {name: torch.empty(shape).uniform_(-most, most, generator=draw) for name, shape in shapes.items()}
    return {"vectors": torch.randn(classes, width, generator=draw), **layers}
