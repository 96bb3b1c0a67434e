"""Equal networks as one: their weights are stacked, and a step of all is one step (`torch.func.vmap`).

Many small equal participants are limited by the number of kernels, not by arithmetic: a layer of fifty of them is one
batched product here. Optimisers work element by element, so torch's own can step a whole stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from heterophony.compute import signature
from heterophony.compute.captured_fit import CapturedFit, lasting_optimiser
from heterophony.compute.compiled import compiled
from heterophony.compute.eager import Job, backward, in_precision, kept, nets_of, part_of, teacher, terms_of
from heterophony.compute.products import written_out
from heterophony.data.table import Data
from heterophony.kernel.node import Slot
from heterophony.kernel.optimisers import clipped
from heterophony.kernel.terms import sum_of
from heterophony.kernel.work import Fit


def stackable(job: Job) -> bool:
    """Tell whether a fit can be one of a stack.

    Adam counts its steps by itself, so its state cannot be kept here. Tied weights have one name for two parts.
    """
    work = job.work
    assert isinstance(work, Fit)
    if any(_tied(job.node.models[part.partition(".")[0]]) for part in work.parts):
        return False
    return work.optimiser.name == "SGD" or not any(kept(work, name) for name in work.names)


def _tied(module: nn.Module) -> bool:
    once, every = module.named_parameters(), module.named_parameters(remove_duplicate=False)
    return sum(1 for _ in once) != sum(1 for _ in every)


def _stacked(tensor: Tensor, seats: int) -> Tensor:
    """Return so many copies, each seat's in one piece, because fused optimisers insist on the layout of gradients."""
    return torch.stack([tensor.detach()] * seats).contiguous()


def _stacked_parameters(module: nn.Module, seats: int) -> dict[str, nn.Parameter]:
    """Return a module's parameters, each as a stack that can be trained where it can."""
    return {
        name: nn.Parameter(_stacked(parameter, seats), requires_grad=parameter.requires_grad)
        for name, parameter in module.named_parameters()
    }


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _in_float(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
    return (given[0].float(),)


def _batch_norms_in_float(modules: Iterable[nn.Module]) -> None:
    """Let BatchNorm compute in single precision: vmap cannot take its gradient apart in two precisions."""
    for module in modules:
        for part in module.modules():
            if isinstance(part, _BatchNorm):
                part.register_forward_pre_hook(_in_float)


class Stack(CapturedFit):
    """A captured fit with several seats."""

    reached: dict[str, set[str]] | None = None  # parameters that the loss depends on, by model

    def _build(self, modules: Mapping[str, nn.Module]) -> None:
        work = self.work
        self.skeletons = self._copies(modules)
        if self.precision == "bf16":
            _batch_norms_in_float(self.skeletons.values())
        if self.way.products:
            self.skeletons = {name: written_out(module) for name, module in self.skeletons.items()}
        self.slots = [Slot(module) for module in self.skeletons.values()]
        weights = {name: _stacked_parameters(module, self.seats) for name, module in self.skeletons.items()}
        self.buffers = {
            name: {n: _stacked(b, self.seats) for n, b in module.named_buffers()}
            for name, module in self.skeletons.items()
        }
        self.tensors = {name: {**weights[name], **self.buffers[name]} for name in weights}
        self.parameters = {name: weights[name] for name in work.names}
        self.optimisers = {
            n: lasting_optimiser(work.optimiser, p.values(), self.cuda) for n, p in self.parameters.items()
        }
        step = vmap(grad(self._loss, has_aux=True), randomness="different")
        self.descent: Any = compiled(step) if self.way.compiled else step

    def _places(self) -> list[dict[str, list[Tensor]]]:
        seats = {name: [tensor.detach().unbind() for tensor in own.values()] for name, own in self.tensors.items()}
        return [{name: [parts[i] for parts in own] for name, own in seats.items()} for i in range(self.seats)]

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return super().zeros(self.seats, *shape, dtype=dtype)

    def seat(self, tensor: Tensor, i: int) -> Tensor:
        return tensor.detach()[i]

    def _put(self, to: Tensor, rows: Sequence[Tensor]) -> None:
        to[:, : len(rows[0])].copy_(torch.stack(list(rows)), non_blocking=True)

    def _loss(
        self,
        parameters: Mapping[str, Mapping[str, Tensor]],
        buffers: Mapping[str, Mapping[str, Tensor]],
        teachers: Mapping[str, Mapping[str, Tensor]],
        columns: Mapping[str, Tensor],
        numbers: Mapping[str, Tensor],
    ) -> tuple[Tensor, Any]:
        """Return what one seat minimises; beside it the terms, and the running statistics after the step."""
        running = {name: {n: b.clone() for n, b in own.items()} for name, own in buffers.items()}

        def ask(name: str, path: str) -> Any:
            weights = teachers[name] if name in teachers else {**parameters[name], **running[name]}
            if path:
                weights = {n.removeprefix(f"{path}."): w for n, w in weights.items() if n.startswith(f"{path}.")}
            part = part_of(self.skeletons[name], path)
            net = in_precision(lambda x: functional_call(part, dict(weights), (x,)), self.precision)
            return (lambda x: net(x).detach()) if name in teachers else net

        nets = nets_of(self.work, ask)
        loss = signature.with_numbers(self.work.loss, dict(numbers))
        terms = terms_of(self.work, loss(nets, Data.of_columns(columns, self.task)))
        return sum_of(terms), (terms, running)

    def _descend(self, places: Tensor) -> dict[str, dict[str, Tensor]]:
        rows = self.order.index_select(1, places)
        seats = torch.arange(self.seats, device=self.device).unsqueeze(1)
        columns = {name: column[seats, rows] for name, column in self.columns.items()}
        if self.augment is not None:
            changed = self.augment.apply(columns["x"].flatten(0, 1), self.drawn.index_select(1, places).flatten(0, 1))
            columns["x"] = changed.view_as(columns["x"])
        trained = {name: _detached(own) for name, own in self.parameters.items()}
        teachers = {name: _detached(self.tensors[name]) for name in self.work.teachers}
        buffers = {n: self.buffers[n] for n in self.work.names}
        if self.reached is None:
            self.reached = self._reached({name: column[0] for name, column in columns.items()})
        gradients, (terms, running) = self.descent(trained, buffers, teachers, columns, self.numbers)
        for name, own in running.items():
            for key, value in own.items():
                self.buffers[name][key].copy_(value)
        self._give_gradients(gradients, self.reached)
        found: dict[str, dict[str, Tensor]] = terms
        return found

    def _give_gradients(self, gradients: Mapping[str, Mapping[str, Tensor]], reached: Mapping[str, set[str]]) -> None:
        """Put each gradient where the optimiser looks for it; parameters that the loss does not reach get none."""
        for name, own in self.parameters.items():
            for key, parameter in own.items():
                # flat and back: where a dimension is one, tensors in one piece may still differ in their strides
                flat = gradients[name][key].contiguous().view(-1)
                parameter.grad = flat.view(parameter.shape) if key in reached[name] else None

    def _reached(self, columns: Mapping[str, Tensor]) -> dict[str, set[str]]:
        """Find which parameters the loss depends on, by an ordinary step of one seat.

        Mapped gradients are zero where there is none, and an optimiser would decay such parameters.
        """

        def ask(name: str, path: str) -> Any:
            part = part_of(self.skeletons[name], path)
            return in_precision(part if name in self.work.names else teacher(part), self.precision)

        nets = nets_of(self.work, ask)
        loss = signature.with_numbers(self.work.loss, {name: number[0] for name, number in self.numbers.items()})
        backward(self.work, loss, nets, Data.of_columns(columns, self.task), {})
        own = {name: dict(self.skeletons[name].named_parameters()) for name in self.work.names}
        found = {name: {n for n, p in named.items() if p.grad is not None} for name, named in own.items()}
        for parameter in (p for named in own.values() for p in named.values()):
            parameter.grad = None
        return found

    def _update(self) -> None:
        for name, transform in self.transforms.items():
            own = {n: p for n, p in self.parameters[name].items() if p.grad is not None}
            gradients = {n: p.grad for n, p in own.items()}
            with torch.no_grad():
                changed = vmap(lambda g, p, a, t=transform: t(g, p, **a))(gradients, own, self.aux)
                for n, gradient in changed.items():
                    own[n].grad = gradient
        if (clip := self.work.optimiser.clip) is not None:
            for named in self.parameters.values():
                found = {n: p.grad for n, p in named.items() if p.grad is not None}
                with torch.no_grad():
                    for n, gradient in vmap(lambda g: clipped(g, clip))(found).items() if found else ():
                        named[n].grad = gradient
        for optimiser in self.optimisers.values():
            optimiser.step()
