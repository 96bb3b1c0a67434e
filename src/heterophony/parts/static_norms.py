"""BatchNorm's statistics apart from weights: taken from rows, sent by themselves, pooled, and put back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heterophony.kernel.node import Node, copy_into
from heterophony.kernel.statistics import statistics
from heterophony.kernel.work import Fit, Named
from heterophony.parts.losses import task_loss
from heterophony.parts.training import Training


def running_statistics(node: Node, model: str = "model") -> dict[str, Tensor]:
    """Return a copy of the means and variances that a node's network keeps; nothing where it has no BatchNorm."""
    return {name: tensor.detach().clone() for name, tensor in statistics(node.models[model]).items()}


def put_statistics(node: Node, found: Named, model: str = "model") -> None:
    """Put means and variances into a node's network."""
    own = statistics(node.models[model])
    copy_into(own.values(), [found[name] for name in own])


def taking_statistics(training: Training, model: str = "model") -> Fit:
    """Return the order to take them anew from the rows that a training sees, without a step."""
    return training.fit(model, task_loss, epochs=0, steps=None, refresh="always", private=None)


def pooled_statistics(items: Sequence[Named], counts: Sequence[float]) -> dict[str, Tensor]:
    """Return means and variances over all rows, from those of each part of the rows."""
    total, pooled = sum(counts), {}
    for name in items[0]:
        if not name.endswith("running_mean"):
            continue
        other = name.removesuffix("mean") + "var"
        mean = sum((n * item[name].double() for item, n in zip(items, counts, strict=True))) / total
        square = sum(
            n * (item[other].double() + item[name].double() ** 2) for item, n in zip(items, counts, strict=True)
        )
        assert isinstance(mean, Tensor)
        assert isinstance(square, Tensor)
        pooled[name] = mean.to(items[0][name].dtype)
        pooled[other] = torch.clamp_min(square / total - mean**2, 0).to(items[0][name].dtype)
    return pooled
