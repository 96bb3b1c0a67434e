"""Work computed one after the other, as ordinary PyTorch: the reference that every faster way must equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.data.table import Data
from heterophony.node import Node
from heterophony.record.score import score
from heterophony.seeds import generator, seeded
from heterophony.work import Fit, Fitted, Mark, Note, Predict, Transform, Work


class WorkError(RuntimeError):
    """A piece of work failed: says whose it was."""


@dataclass
class Job:
    """One piece of work, whose it is and which of that node's it is; rows for the table are left in `rows`."""

    node: Node
    work: Work
    tag: str  # distinguishes the randomness of a node's jobs
    time: float = 0.0
    evaluate: bool = True  # whether this is a round that goes into the table
    rows: list[dict[str, Any]] = field(default_factory=list)


class Eager:
    """The compute seam: `compute(list of jobs) -> list of answers`. A GPU cohort has the same signature."""

    def __init__(self, tests: Callable[[str], Sequence[tuple[str, str, Data]]] = lambda node: ()) -> None:
        self.tests = tests  # (set, split, data) that a node's products are evaluated on

    def __call__(self, jobs: Sequence[Job]) -> list[Any]:
        return [self._located(job) for job in jobs]

    def _located(self, job: Job) -> Any:
        try:
            return self._one(job)
        except Exception as error:
            where = f"node {job.node.id}, round {job.node.round}, {type(job.work).__name__}"
            raise WorkError(f"{where}: {type(error).__name__}: {error}") from error

    def _one(self, job: Job) -> Any:
        node, work = job.node, job.work
        match work:
            case Fit():
                with seeded(node.seed, node.id, node.round, "fit", job.tag):
                    fitted = fit(node, work)
                if job.evaluate:
                    for model, terms in fitted.losses.items():
                        job.rows += [_row(job, "training", work.data, "train", f"{model}.{term}", value)
                                     for term, value in terms.items()]  # fmt: skip
                return fitted
            case Predict():
                return predict(node.models[work.model], node.data.placed(work.data), work.rows, work.batch)
            case Mark():
                if job.evaluate:
                    job.rows += self._evaluate(job, work)
            case Note():
                job.rows.append(_row(job, "note", "", "", work.quantity, float(work.value), work.n))
        return None

    def _evaluate(self, job: Job, mark: Mark) -> list[dict[str, Any]]:
        rows = []
        for name, split, data in self.tests(job.node.id):
            # With a joint head (private and public classes) only the outputs of the test's own classes count.
            logits = predict(job.node.models[mark.model], data)[:, : data.classes]
            for quantity, (total, n) in score(logits, data.y).items():
                rows.append(_row(job, mark.product, name, split, quantity, total, n))
        return rows


def _row(
    job: Job, product: str, set: str, split: str, quantity: str, total: float | None, n: int = 1
) -> dict[str, Any]:
    place = {"round": job.node.round, "time": job.time, "product": product, "node": job.node.id}
    finite = (
        total if total is not None and math.isfinite(total) else None
    )  # undefined is null: NaN is no JSON and equals nothing
    return {**place, "set": set, "split": split, "quantity": quantity, "sum": finite, "n": n}


def predict(model: nn.Module, data: Data, rows: Tensor | None = None, batch: int = 512) -> Tensor:
    """A model's outputs, in evaluation mode; the model is left in the mode it was in."""
    with _evaluating(model), torch.no_grad():
        x = data.x if rows is None else data.x.index_select(0, rows.to(data.device))
        device = next((p.device for p in model.parameters()), x.device)
        return torch.cat([model(part.to(device)) for part in torch.split(x, batch)]).cpu()


@contextmanager
def _evaluating(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode for the block; every sub-module gets back the mode it had."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def fit(node: Node, work: Fit) -> Fitted:
    """Train in place, step by step."""
    models = {name: node.models[name] for name in work.names}
    for model in models.values():
        model.train()
    with _evaluating(*(node.models[teacher] for teacher in work.teachers)):
        return _fit(node, work, models)


def _fit(node: Node, work: Fit, models: dict[str, nn.Module]) -> Fitted:
    teachers = {name: _teacher(node.models[name]) for name in work.teachers}
    nets: dict[str, Callable[[Tensor], Tensor]] = {**models, **teachers}
    parameters = {name: dict(model.named_parameters()) for name, model in models.items()}
    optimisers = {name: _optimiser(node, work, name, parameters[name]) for name in models}
    aux = _on(node.device, work.aux)
    given = work.transform or {}
    transforms = given if isinstance(given, Mapping) else {work.names[0]: given}
    start = None
    if work.answer == "displacement":
        start = {name: p.detach().clone() for name, p in parameters[work.names[0]].items()}
    gradient = None
    sums: dict[str, dict[str, Tensor]] = {}
    steps = 0
    for batch in _batches(node, work):
        terms = _terms(work, work.loss(nets, batch))
        for optimiser in optimisers.values():
            optimiser.zero_grad(set_to_none=True)
        parts = [value for named in terms.values() for value in named.values()]
        sum(parts[1:], start=parts[0]).backward()  # type: ignore[no-untyped-call]
        if work.answer == "gradient" and gradient is None:
            gradient = {n: p.grad.cpu().clone() for n, p in parameters[work.names[0]].items() if p.grad is not None}
        for name, transform in transforms.items():
            _transform(transform, parameters[name], aux)
        for optimiser in optimisers.values():
            optimiser.step()
        for name, values in terms.items():
            kept = sums.setdefault(name, {})
            for term, value in values.items():
                kept[term] = kept[term] + value.detach() if term in kept else value.detach()
        steps += 1
    for name in models:
        if (key := _kept(work, name)) is not None:
            state = optimisers[name].state
            node.optimisers[key] = {n: dict(state[p]) for n, p in parameters[name].items() if p in state}
    losses = {m: {t: float(total) / steps for t, total in named.items()} for m, named in sums.items()}
    displacement = None
    if start is not None:
        displacement = {n: (start[n] - p.detach()).cpu() for n, p in parameters[work.names[0]].items()}
    for named in parameters.values():
        for parameter in named.values():
            parameter.grad = None
    return Fitted(losses, steps, gradient, displacement)


def _batches(node: Node, work: Fit) -> Any:
    view = node.data.placed(work.data)
    data = view if work.rows is None else view.take(work.rows.to(node.device))
    if work.extra:
        data = data.with_columns(**_on(node.device, work.extra))
    sizes = work.sizes(node)
    while sizes:
        epoch = node.epochs.get(work.data, 0)
        order = node.order(work.data, len(data)).to(node.device)
        if data.augment is not None:  # one table for the epoch: its row i is for the image at place i of the order
            drawn = generator(node.seed, node.id, work.data, epoch, "augment")
            params = data.augment.draw(len(data), drawn).to(node.device)
        at = 0
        while sizes and at + sizes[0] <= len(data):
            size = sizes.pop(0)
            batch = data.take(order[at : at + size])
            if data.augment is not None:
                batch = batch.with_columns(x=data.augment.apply(batch.x, params[at : at + size]))
            yield batch
            at += size


def _on(device: str, value: Any) -> Any:
    """Tensors in a work order, on the node's device."""
    if isinstance(value, Tensor):
        return value.to(device)
    return {key: _on(device, item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _terms(work: Fit, loss: Any) -> dict[str, dict[str, Tensor]]:
    if isinstance(loss, Tensor):
        return {work.names[0]: {"loss": loss}}
    found = {name: {"loss": value} if isinstance(value, Tensor) else value for name, value in loss.items()}
    return {name: terms for name, terms in found.items() if name in work.names}  # a teacher has no loss


def _transform(transform: Transform, parameters: Mapping[str, nn.Parameter], aux: Mapping[str, Any]) -> None:
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    with torch.no_grad():
        for name, gradient in transform(gradients, parameters, **aux).items():
            parameters[name].grad = gradient


def _kept(work: Fit, model: str) -> str | None:
    name = work.keep if isinstance(work.keep, str) or work.keep is None else work.keep.get(model)
    return None if name is None else f"{model}/{name}"


def _optimiser(node: Node, work: Fit, model: str, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    optimiser = work.optimiser.build(p for p in parameters.values() if p.requires_grad)
    key = _kept(work, model)
    for name, state in node.optimisers.get(key, {}).items() if key else ():
        work.optimiser.check(state)
        # moments follow their parameter; step counters stay where torch keeps them
        here = parameters[name].device
        optimiser.state[parameters[name]] = {
            k: v.to(here) if torch.is_tensor(v) and v.dim() else v for k, v in state.items()
        }
    return optimiser


def _teacher(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def ask(x: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = model(x)
        return out

    return ask
