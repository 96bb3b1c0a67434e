"""FedGen's generator: a small network that makes features of labels, for heads to read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.data.table import Data
from heterophony.kernel.message import Message
from heterophony.kernel.node import Node
from heterophony.kernel.work import Mark, Named, Steps
from heterophony.parts.aggregate import finite
from heterophony.parts.features import head_of
from heterophony.parts.heads import repeated
from heterophony.parts.losses import Nets, ce, cross_entropy
from heterophony.parts.training import Training


@dataclass(frozen=True)
class Generator:
    """What the generator is like, and how a server trains it.

    It makes features of noise and a one-hot label, by two linear layers with ReLU between them.
    """

    noise: Annotated[int, "how many numbers of noise, from a standard normal distribution"] = 32
    hidden: Annotated[int, "width of the inner layer"] = 256
    steps: Annotated[int, "of Adam, in each round"] = 50
    batch: Annotated[int, "rows of a step"] = 32
    lr: Annotated[float, "learning rate"] = 0.005
    diversity: Annotated[float, "the weight of the diversity loss"] = 1.0

    def __post_init__(self) -> None:
        if min(self.noise, self.hidden, self.batch) < 1 or self.steps < 0:
            given = f"{self.noise}, {self.hidden}, {self.batch} and {self.steps}"
            raise ValueError(f"noise, hidden and batch are numbers >= 1 and steps one >= 0, got {given}")
        if not (self.lr > 0 and self.diversity >= 0):
            raise ValueError(f"lr is a rate > 0 and diversity a weight >= 0, got {self.lr} and {self.diversity}")

    def shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor, for so many classes and features."""
        inputs = self.noise + classes
        layers = {"inner": (self.hidden, inputs), "inner bias": (self.hidden,)}
        return {**layers, "outer": (width, self.hidden), "outer bias": (width,)}

    def fresh(self, classes: int, width: int, draw: torch.Generator) -> dict[str, Tensor]:
        """Return layers as torch begins them."""
        inputs = {"inner": self.noise + classes, "outer": self.hidden}
        layers = {}
        for name, shape in self.shapes(classes, width).items():
            layer = name.partition(" ")[0]  # "inner bias" is of the layer "inner"
            most = 1 / math.sqrt(inputs[layer])
            layers[name] = torch.empty(shape).uniform_(-most, most, generator=draw)
        return layers

    def fits(self, weights: Named, classes: int, width: int) -> bool:
        """Return whether these are layers for so many classes and features; a sender may send anything."""
        found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if found != self.shapes(classes, width):
            return False
        return all(tensor.dtype == torch.float32 for tensor in weights.values())

    def payload(self, classes: int, width: int) -> int:
        """Return the bytes of its weights."""
        return 4 * sum(math.prod(shape) for shape in self.shapes(classes, width).values())

    def drawn(self, shares: Tensor, rows: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return as many random labels, drawn by their shares, and the noise for each of them."""
        labels = torch.multinomial(shares.double(), rows, replacement=True, generator=draw)
        return labels, torch.randn(rows, self.noise, generator=draw)

    def trained(self, weights: Named, head: Tensor, shares: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
        """Return the layers after `steps` steps of Adam, towards features of which the head tells the label.

        Args:
            weights: the layers as they are.
            head: the weights of a linear head, with its bias in the last column.
            shares: how often each label is drawn.
            draw: where labels and noise are drawn from.
        """
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
        """Return the cross-entropy of what the head tells, plus the weighted diversity loss."""
        features = made(weights, labels, noise)
        told = F.cross_entropy(features @ head[:, :-1].T + head[:, -1], labels)
        return told + self.diversity * likeness(features, noise)

    # -- at a client -----------------------------------------------------------------------------------------------
    def usable(self, mail: Message, data: Data, width: int) -> bool:
        """Return whether the mail has a generator for these classes and so many features: it may be anything."""
        fits = len(mail.shares) == data.classes and self.fits(mail.generator, data.classes, width)
        return fits and bool(mail.shares.sum() > 0)

    def beside(self, client: Node, mail: Message, rows: int) -> dict[str, Tensor]:
        """Return what stands beside private rows: a label each, drawn by the shares, and features made of it."""
        labels, noise = self.drawn(mail.shares, rows, client.rng("generated"))
        layers = {name: tensor.cpu() for name, tensor in mail.generator.items()}
        own = head_of(client.models["model"], "FedGen")
        features = repeated(made(layers, labels, noise), own.in_features).to(own.weight.dtype)
        return {"features": features, "labels": labels}

    def study(self, client: Node, mail: Message, local: Training, weight: float, width: int) -> Steps:
        """Train a client; with generated features beside its rows, once there is a generator that fits."""
        yield from local.before_first_round(client, cross_entropy)
        data = client.data[local.data]
        if self.usable(mail, data, width):
            extra = self.beside(client, mail, len(data))
            yield local.fit("model", GeneratedLoss(weight), extra=extra, parts=("model.head",))
        else:
            yield local.fit("model", cross_entropy)
        yield Mark("personalised")

    # -- at the server ---------------------------------------------------------------------------------------------
    def teach(self, server: Node, head: Tensor, counts: list[Tensor]) -> None:
        """Train the server's generator from the mean of the heads, with labels as often as clients have them.

        The variables "generator" and "shares" hold what comes of it.
        """
        total = sum((each.double() for each in counts), start=torch.zeros(len(head), dtype=torch.float64))
        server.vars["shares"] = shares = (total / total.sum().clamp_min(1)).float()
        if not shares.sum() > 0:  # nobody says that it has any
            return
        weights, size = server.vars.get("generator", {}), (len(head), head.shape[1] - 1)
        if not self.fits(weights, *size):
            weights = self.fresh(*size, server.rng("layers"))
        trained = self.trained(weights, head, shares, server.rng("generator"))
        server.vars["generator"] = trained if finite(trained) else {}


@dataclass(frozen=True)
class GeneratedLoss:
    """The cross-entropy of a network on its rows, and of its head on generated `features`, of these `labels`."""

    weight: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        own, generated = nets["model"](batch.x), nets["model.head"](batch.features)
        return {"model": {"ce": ce(own, batch.y), "generated": self.weight * ce(generated, batch.labels)}}


def made(weights: Named, labels: Tensor, noise: Tensor) -> Tensor:
    """Return the features that the generator makes of these labels and this noise."""
    classes = weights["inner"].shape[1] - noise.shape[1]
    inputs = torch.cat([noise, F.one_hot(labels, classes).to(noise)], 1)
    inner = (inputs @ weights["inner"].T + weights["inner bias"]).relu()
    return inner @ weights["outer"].T + weights["outer bias"]


def likeness(features: Tensor, noise: Tensor) -> Tensor:
    """Return the diversity loss: how alike features are whose noise differs.

    For each pair of rows, the distance of the features (L1) is multiplied by that of the noise (squared). The loss is
    exp(-mean) over all pairs.
    """
    apart = (features.unsqueeze(0) - features.unsqueeze(1)).abs().mean(-1)
    noise_apart = (noise.unsqueeze(0) - noise.unsqueeze(1)).square().mean(-1)
    return (-noise_apart * apart).mean().exp()
