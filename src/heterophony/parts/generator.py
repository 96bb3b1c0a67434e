"""A small network that makes features of labels, for heads to read: FedGen's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.kernel.work import Named


@dataclass(frozen=True)
class Generator:
    """Noise and a label, one-hot, to features, by two layers with ReLU between them; and how a server trains it."""

    noise: int = 32  # how many numbers of it, from a standard normal distribution
    hidden: int = 256
    steps: int = 50  # of Adam, in each round
    batch: int = 32
    lr: float = 0.005
    diversity: float = 1.0  # the weight of the diversity loss

    def __post_init__(self) -> None:
        if min(self.noise, self.hidden, self.batch) < 1 or self.steps < 0:
            given = f"{self.noise}, {self.hidden}, {self.batch} and {self.steps}"
            raise ValueError(f"noise, hidden and batch are numbers >= 1 and steps one >= 0, got {given}")
        if not (self.lr > 0 and self.diversity >= 0):
            raise ValueError(f"lr is a rate > 0 and diversity a weight >= 0, got {self.lr} and {self.diversity}")

    def shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        inputs = self.noise + classes
        layers = {"inner": (self.hidden, inputs), "inner bias": (self.hidden,)}
        return {**layers, "outer": (width, self.hidden), "outer bias": (width,)}

    def fresh(self, classes: int, width: int, draw: torch.Generator) -> dict[str, Tensor]:
        """Layers as torch begins them."""
        shapes, most = self.shapes(classes, width), {"inner": self.noise + classes, "outer": self.hidden}
        sizes = {name: 1 / math.sqrt(most[name.partition(" ")[0]]) for name in shapes}
        return {n: torch.empty(shape).uniform_(-sizes[n], sizes[n], generator=draw) for n, shape in shapes.items()}

    def fits(self, weights: Named, classes: int, width: int) -> bool:
        """Whether these are layers for so many classes and features: what was heard may be anything."""
        found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        return found == self.shapes(classes, width) and all(t.dtype == torch.float32 for t in weights.values())

    def payload(self, classes: int, width: int) -> int:
        """Bytes of its weights."""
        return 4 * sum(math.prod(shape) for shape in self.shapes(classes, width).values())

    def drawn(self, shares: Tensor, rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """So many labels, by their shares, and the noise beside each."""
        labels = torch.multinomial(shares.double(), rows, replacement=True, generator=draw)
        return labels, torch.randn(rows, self.noise, generator=draw)

    def trained(self, weights: Named, head: Tensor, shares: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
        """After its steps towards features of which this head (its bias in the last column) tells the label."""
        layers = {name: tensor.double().requires_grad_() for name, tensor in weights.items()}
        optimiser = torch.optim.Adam(list(layers.values()), self.lr)
        for _ in range(self.steps):
            labels, noise = self.drawn(shares, self.batch, draw)
            optimiser.zero_grad()
            with torch.enable_grad():
                self.loss(layers, head.double(), labels, noise.double()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return {name: tensor.detach().float() for name, tensor in layers.items()}

    def loss(self, weights: Named, head: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
        """Cross-entropy of what the head tells, and how little features differ where noise does."""
        features = made(weights, labels, noise)
        told = F.cross_entropy(features @ head[:, :-1].T + head[:, -1], labels)
        return told + self.diversity * likeness(features, noise)


def made(weights: Named, labels: Tensor, noise: Tensor) -> Tensor:
    """The features of these labels with this noise."""
    classes = weights["inner"].shape[1] - noise.shape[1]
    inputs = torch.cat([noise, F.one_hot(labels, classes).to(noise)], 1)
    inner = (inputs @ weights["inner"].T + weights["inner bias"]).relu()
    return inner @ weights["outer"].T + weights["outer bias"]


def likeness(features: Tensor, noise: Tensor) -> Tensor:
    """exp of minus the mean, over all pairs of rows, of their features' distance (L1) times their noise's (squared)."""
    apart = (features.unsqueeze(0) - features.unsqueeze(1)).abs().mean(-1)
    return (-(noise.unsqueeze(0) - noise.unsqueeze(1)).square().mean(-1) * apart).mean().exp()
