"""Training that is private for each row (DP-SGD): Abadi et al., Deep Learning with Differential Privacy, CCS 2016.

Each step draws every row with one probability (Poisson sampling), clips each drawn row's gradient, adds noise to their
sum, and divides by the size that a batch has on average. So nothing depends on how many rows were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from heterophony.base.seeds import generator
from heterophony.data.table import Data
from heterophony.kernel.node import Node
from heterophony.kernel.terms import named_terms, sum_of
from heterophony.kernel.work import Fit

CHUNK = 256  # rows whose gradients are held at a time
Terms = dict[str, dict[str, Tensor]]


def batches(node: Node, work: Fit, data: Data) -> Iterator[tuple[Data, float]]:
    """Yield the rows of each step, and the size that a batch has on average."""
    assert work.source is not None
    steps, rows = len(work.sizes(node)), len(data)
    size = min(work.batch or rows, rows)
    for step in range(steps):
        drawn = work.source.uniform(rows) < size / rows
        batch = data.take(drawn.nonzero().flatten().to(data.device))
        if data.augment is not None:
            table = generator(node.seed, node.id, work.data, node.epochs.get(work.data, 0), step, "augment")
            batch = batch.with_columns(x=data.augment.apply(batch.x, data.augment.draw(len(batch), table)))
        yield batch, size
    node.epochs[work.data] = node.epochs.get(work.data, 0) + work.epochs


def backward(node: Node, work: Fit, batch: Data, size: float) -> Terms:
    """Leave the noised mean gradient on the parameters; return the loss terms, as means over the drawn rows."""
    assert work.private is not None
    assert work.private.clip is not None
    assert isinstance(work.private.noise, int | float)
    assert work.source is not None
    model = node.models[work.names[0]]
    moved = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sums, terms = summed(model, work, moved, batch, work.private.clip)
    deviation = work.private.noise * work.private.clip
    noise = deviation * work.source.normal(sum(p.numel() for p in moved.values()))
    at = 0
    for name, parameter in moved.items():
        part = noise[at : at + parameter.numel()].view(parameter.shape).to(parameter.dtype).to(parameter.device)
        parameter.grad = (sums[name] + part) / size
        at += parameter.numel()
    return terms


def summed(
    model: nn.Module, work: Fit, moved: Mapping[str, Tensor], batch: Data, clip: float
) -> tuple[dict[str, Tensor], Terms]:
    """Return the sum of the rows' clipped gradients, and the means of the loss terms."""
    still = {n: t for n, t in (*model.named_parameters(), *model.named_buffers()) if n not in moved}
    still = {name: tensor.detach() for name, tensor in still.items()}
    columns = {**batch.columns, "x": batch.x}
    name = work.names[0]

    def loss(moved: dict[str, Tensor], row: dict[str, Tensor]) -> tuple[Tensor, Terms]:
        alone = Data.of_columns({key: value.unsqueeze(0) for key, value in row.items()}, batch.task)
        found = named_terms(work.loss(_nets(model, work, {**still, **moved}), alone), name)
        return sum_of(found), found

    each = vmap(grad_and_value(loss, has_aux=True), in_dims=(None, 0), randomness="different")
    start = {key: value.detach() for key, value in moved.items()}
    sums = {key: torch.zeros_like(value) for key, value in start.items()}
    totals: Terms = {}
    for at in range(0, len(batch), CHUNK):
        part = {key: column[at : at + CHUNK] for key, column in columns.items()}
        gradients, (_, terms) = each(start, part)
        for key, gradient in _clipped(gradients, clip).items():
            sums[key] += gradient.sum(0)
        for model_name, own in terms.items():
            known = totals.setdefault(model_name, {})
            for term, value in own.items():
                known[term] = known.get(term, 0) + value.detach().sum() / len(batch)
    return sums, totals


def _clipped(gradients: Mapping[str, Tensor], clip: float) -> dict[str, Tensor]:
    """Return each row's gradient, made shorter where it is longer than the clip."""
    gradients = {name: torch.nan_to_num(gradient) for name, gradient in gradients.items()}  # one row must not spoil all
    parts = [gradient.reshape(len(gradient), -1).square().sum(1) for gradient in gradients.values()]
    share = (clip / torch.stack(parts).sum(0).sqrt().clamp(min=torch.finfo(torch.float32).tiny)).clamp(max=1.0)
    return {n: g * share.view(-1, *[1] * (g.dim() - 1)) for n, g in gradients.items()}


def _nets(model: nn.Module, work: Fit, tensors: Mapping[str, Tensor]) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return what the loss may ask: the model with these tensors, and its parts."""

    def ask(path: str) -> Callable[[Tensor], Tensor]:
        part = model.get_submodule(path)
        own = {n.removeprefix(f"{path}."): t for n, t in tensors.items() if not path or n.startswith(f"{path}.")}

        def net(x: Tensor) -> Any:
            return functional_call(part, own, (x,))

        return net

    found = {work.names[0]: ask("")}
    for part in work.parts:
        found[part] = ask(part.partition(".")[2])
    return found
