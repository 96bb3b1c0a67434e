"""A model's loss on rows of its node, as some methods compare it."""

from __future__ import annotations

from heterophony.kernel.node import Node
from heterophony.kernel.work import Predict, Steps


def loss_on(node: Node, view: str, model: str = "model") -> Steps:
    """Return a model's mean loss over all rows of a view; 0 where there are none."""
    data = node.data[view]
    if not len(data):
        return 0.0
    outputs = yield Predict(model, view)
    return float(data.task.loss(outputs, data.y))
