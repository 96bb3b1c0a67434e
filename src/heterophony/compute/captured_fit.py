"""A place where one kind of training runs: networks, optimisers and data at fixed addresses, and graphs of its steps.

A node's state is copied in, the captured steps are replayed, and the state is copied back; so a graph that was captured
for one participant serves every other whose work is the same program. On a CPU the steps are run instead of replayed,
with the same bits as one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.base.seeds import derive, generator, seeded
from heterophony.compute import signature
from heterophony.compute.choice import BRANCHES, Way
from heterophony.compute.compiled import certain, in_batches_of
from heterophony.compute.eager import (
    Job,
    Net,
    backward,
    kept,
    nets_of,
    on_device,
    part_of,
    precise,
    teacher,
    transforms_of,
    untrained,
    update,
)
from heterophony.compute.fit_program import capacity
from heterophony.data.augment import Augmentation
from heterophony.data.table import Data
from heterophony.kernel.node import Node, Slot, copy_into, laid_out
from heterophony.kernel.optimisers import Descent, Optimiser
from heterophony.kernel.work import Fit, Fitted

CHUNKS = (16, 4, 1)  # steps in one graph: long ones spare the host, short ones fill up
DEPTHS = (24, 64)  # a network of more tensors than these has shorter ones: its step is long, and so is capturing it
TRIAL = 4  # steps that are timed as one graph, at most
Pairs = list[tuple[Tensor, Tensor]]  # (to, from)


class Rows:
    """What a fit trains on: a view's columns, which of its rows, and columns beside them."""

    def __init__(self, node: Node, work: Fit) -> None:
        self.view = node.data.placed(work.data)
        self.rows = work.rows
        self.extra = on_device(node.device, work.extra)
        self.count = len(self.view) if work.rows is None else len(work.rows)

    @property
    def form(self) -> tuple[tuple[str, tuple[int, ...], torch.dtype], ...]:
        columns = {**self.view.columns, **self.extra}
        read = None if self.view.levels is None or "x" in self.extra else self.view.levels.dtype
        return tuple(
            (name, tuple(column.shape[1:]), read if name == "x" and read else column.dtype)
            for name, column in columns.items()
        )

    def column(self, name: str, chosen: Tensor | None) -> Tensor:
        """What a fit reads, of these rows: of images kept as bytes, what they stand for."""
        if name in self.extra:
            given: Tensor = self.extra[name]
            return given
        column = self.view.columns[name] if chosen is None else self.view.columns[name].index_select(0, chosen)
        return self.view.read(column) if name == "x" else column


class Losses(Mapping[str, dict[str, float]]):
    """The mean loss terms of a fit. The device is asked when somebody wants to know them: asking waits for it."""

    def __init__(self, totals: Callable[[], list[float]], terms: Sequence[tuple[str, str]], steps: int) -> None:
        self.totals, self.terms, self.steps = totals, terms, steps

    @cached_property
    def known(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for (model, term), total in zip(self.terms, self.totals(), strict=True):
            found.setdefault(model, {})[term] = total / self.steps
        return found

    def __getitem__(self, model: str) -> dict[str, float]:
        return self.known[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


def plan(sizes: Sequence[int], apart: bool, tensors: int = 0) -> list[tuple[int, int, bool]]:
    """(batch, steps, whether the gradient is kept) of each graph to replay; `apart` sets off the first step."""
    chunks = CHUNKS[sum(tensors > depth for depth in DEPTHS) :]
    calls = [(sizes[0], 1, True)] if apart and sizes else []
    for batch, run in groupby(sizes[len(calls) :]):
        left = len(list(run))
        for chunk in chunks:
            calls += [(batch, chunk, False)] * (left // chunk)
            left %= chunk
    return calls


class Track:
    """A stream, and the memory that graphs on it need in between: for lanes that need not run side by side.

    They may be replayed in any order, since nothing that outlives a replay is in that memory.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()


class Lane:
    """Room for fits of one kind: for one, or as a stack (see `stack.py`) for several that step together."""

    def __init__(
        self,
        job: Job,
        rows: Rows,
        precision: str = "fp32",
        way: Way = BRANCHES,
        seats: int = 1,
        track: Track | None = None,
        chance: bool = True,
    ) -> None:
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        self.work, self.device, self.precision = work, torch.device(node.device), precision
        self.way, self.seats, self.chance = way, seats, chance  # without chance there is no dropout
        self.cuda = self.device.type == "cuda"
        self.classes, self.transforms = rows.view.classes, transforms_of(work)
        self._furnish({name: node.models[name] for name in (*work.names, *work.teachers)})
        self.homes = self._homes()
        self.depth = sum(len(own) for own in self.tensors.values())
        room = capacity(rows.count)
        self.columns = {name: self.zeros(room, *shape, dtype=dtype) for name, shape, dtype in rows.form}
        self.order = self.zeros(room, dtype=torch.int64)
        self.augment = rows.view.augment
        self.drawn = self.zeros(room, _parameters(self.augment), dtype=torch.int64)  # beside each place of the order
        self.at = torch.zeros((), dtype=torch.int64, device=self.device)
        self.aux = self._room(work.aux)
        self.numbers = {n: self.zeros(dtype=torch.float32) for n in signature.numbers(work.loss)}
        self.first: dict[str, Tensor] = {}  # gradients of the first step
        self.terms: list[tuple[str, str]] = []
        self.total: Tensor | None = None
        self.graphs: dict[tuple[int, int, bool], Any] = {}
        self.staged: dict[int, Data] = {}  # by seat: the view that its columns hold, whole
        self.served: str | None = None  # the node that was here last
        self.used = -1  # the call in which it was used last
        self.fresh = False  # whether it has new graphs, and the steps before them have left memory behind
        self.track = track
        if self.cuda:
            self.track = track or Track(self.device)
            self.stream, self.pool = self.track.stream, self.track.pool
            self.generator = torch.Generator(self.device)

    def _furnish(self, modules: Mapping[str, nn.Module]) -> None:
        """Networks and optimisers of its own."""
        work = self.work
        copies = self._copies(modules)
        if self.cuda:  # on a CPU, as the node has it
            layout = torch.channels_last if self.way.channels_last else torch.contiguous_format
            for module in copies.values():
                laid_out(module, layout)
        self.slots = [Slot(module) for module in copies.values()]
        self.tensors = {name: slot.tensors() for name, slot in zip(copies, self.slots, strict=True)}
        self.parameters = {name: dict(copies[name].named_parameters()) for name in work.names}
        self.optimisers = {n: resident(work.optimiser, p.values(), self.cuda) for n, p in self.parameters.items()}

        def ask(name: str, path: str) -> Net:
            part = part_of(copies[name], path)
            net = in_batches_of(work.batch or 1, part) if self.way.compiled else part
            return precise(net if name in work.names else teacher(net), self.precision)

        self.nets = nets_of(work, ask)

    def _copies(self, modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
        copies = {name: deepcopy(module).train(name in self.work.names) for name, module in modules.items()}
        if self.work.only is not None:
            for parameter in untrained(self.work, copies[self.work.names[0]]):
                parameter.requires_grad_(False)
        return copies if self.chance else {name: certain(module) for name, module in copies.items()}

    def _homes(self) -> list[dict[str, list[Tensor]]]:
        """By seat and model: where its tensors are, in the order of a node's own."""
        return [{name: [tensor.detach() for tensor in own.values()] for name, own in self.tensors.items()}]

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def seat(self, tensor: Tensor, i: int) -> Tensor:
        """The part of a tensor that belongs to the i-th fit."""
        return tensor

    # -- in and out ------------------------------------------------------------------------------------------
    def enter(self, jobs: Sequence[Job], rows: Sequence[Rows]) -> tuple[Pairs, list[Tensor]]:
        """Take nodes' work: what is to be copied in, and what is to be set to zero."""
        self.prepare(jobs[0])
        return self.admit(jobs, rows)

    def admit(self, jobs: Sequence[Job], rows: Sequence[Rows]) -> tuple[Pairs, list[Tensor]]:
        """The same for a lane that is ready."""
        work = self.work
        copies: Pairs = []
        for i, (job, own) in enumerate(zip(jobs, rows, strict=True)):
            copies += self._seat(i, job, own)
        orders, drawn = zip(
            *(_orders(job.node, job.work, own, self.sizes) for job, own in zip(jobs, rows, strict=True)),  # type: ignore[arg-type]
            strict=True,
        )
        self._put(self.order, orders)
        if self.augment is not None:
            self._put(self.drawn, drawn)
        zeros = [self.at] + ([self.total] if self.total is not None else [])
        for i, job in enumerate(jobs):
            for name in work.names:
                put, clear = self._moments(i, job, name)
                copies, zeros = copies + put, zeros + clear
        if self.cuda:
            self.generator.manual_seed(derive(*_purpose(jobs[0])))
        return copies, zeros

    def prepare(self, job: Job, trial: bool = False) -> None:
        """Have everything ready for such a fit, before any state comes in; nothing of the node changes.

        For a `trial` a few steps are enough: they are what is timed.
        """
        work = job.work
        assert isinstance(work, Fit)
        self.work, self.sizes = work, work.sizes(job.node)
        self.plan = plan(self.sizes, work.answer == "gradient", self.depth)
        if trial:
            largest = max(self.sizes)
            self.plan = plan([largest] * min(TRIAL, self.sizes.count(largest)), False, self.depth)[:1]
        if sum(self.sizes) > self.order.shape[-1]:
            self.order = self.zeros(2 * sum(self.sizes), dtype=torch.int64)
            self.drawn = self.zeros(2 * sum(self.sizes), _parameters(self.augment), dtype=torch.int64)
            self.graphs.clear()  # they read the old one
        self._warm()

    def _seat(self, i: int, job: Job, rows: Rows) -> Pairs:
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        copies: Pairs = []
        for name, own in self.homes[i].items():
            copies += zip(own, node.slots[name].tensors().values(), strict=True)
        copies += [(self.seat(to, i), of) for to, of in _copies(self.aux, work.aux)]
        for name, number in signature.numbers(work.loss).items():
            self.seat(self.numbers[name], i).fill_(number)
        copies += self._stage(i, rows)
        return copies

    def _put(self, to: Tensor, rows: Sequence[Tensor]) -> None:
        """Write every seat's rows, which are equally many, at once."""
        to[: len(rows[0])].copy_(rows[0], non_blocking=True)

    def _stage(self, i: int, rows: Rows) -> Pairs:
        """Have the rows where the graphs read them, unless they are there already: what is to be copied."""
        whole = rows.rows is None and not rows.extra
        if whole and self.staged.get(i) is rows.view:
            return []
        chosen = None if rows.rows is None else rows.rows.to(self.device)
        copies: Pairs = []
        for name, column in self.columns.items():
            copies.append((self.seat(column, i)[: rows.count], rows.column(name, chosen)))
        self.staged.pop(i, None)
        if whole:
            self.staged[i] = rows.view
        return copies

    def _moments(self, i: int, job: Job, name: str) -> tuple[Pairs, list[Tensor]]:
        """An optimiser's state: as kept by the node, or fresh, which is zero."""
        key = kept(job.work, name)  # type: ignore[arg-type]
        before = job.node.optimisers.get(key, {}) if key else {}
        copies: Pairs = []
        zeros: list[Tensor] = []
        state = self.optimisers[name].state
        for n, parameter in self.parameters[name].items() if state else ():
            for part, tensor in state.get(parameter, {}).items():
                if not torch.is_tensor(tensor):
                    continue
                if n in before:
                    self.work.optimiser.check(before[n])
                    copies.append((self.seat(tensor, i) if tensor.dim() else tensor, before[n][part]))
                else:
                    zeros.append(self.seat(tensor, i) if tensor.dim() else tensor)
        return copies, zeros

    def leave(self, jobs: Sequence[Job]) -> Pairs:
        """Give nodes their models and moments back: what is to be copied out."""
        copies: Pairs = []
        for i, job in enumerate(jobs):
            for name in self.work.names:
                copies += zip(job.node.slots[name].tensors().values(), self.homes[i][name], strict=True)
                if (key := kept(job.work, name)) is not None:  # type: ignore[arg-type]
                    state, before = self.optimisers[name].state, job.node.optimisers.get(key, {})
                    job.node.optimisers[key] = {  # of what is not trained now, what was kept
                        n: {part: self._out(value, i) for part, value in state[p].items()} if p in state else before[n]
                        for n, p in self.parameters[name].items()
                        if p in state or n in before
                    }
        return copies

    def _out(self, value: Any, i: int) -> Any:
        if not torch.is_tensor(value):
            return value
        return (self.seat(value, i) if value.dim() else value).clone()

    def fitted(self, i: int, job: Job, totals: Callable[[], list[float]]) -> Fitted:
        """The answer to the i-th fit, before its state goes back; `totals` asks for the sums of the loss terms."""
        losses = Losses(totals, self.terms, len(self.sizes))
        first = self.work.names[0]
        gradient = displacement = None
        if self.work.answer == "gradient":
            gradient = {n: self.seat(g, i).clone() for n, g in self.first.items()}
        elif self.work.answer == "displacement":
            before = dict(job.node.models[first].named_parameters())
            after = self.parameters[first]
            displacement = {n: p.detach() - self.seat(after[n], i).detach() for n, p in before.items()}
        return Fitted(losses, len(self.sizes), gradient, displacement)

    # -- steps -----------------------------------------------------------------------------------------------
    def gradients(self, jobs: Sequence[Job], rows: Sequence[Rows]) -> list[Tensor]:
        """Those of a first step of these fits, for each size that their batches have; their nodes stay as they are."""
        work = jobs[0].work
        assert isinstance(work, Fit)
        self.work = work
        return [self._gradient(jobs, rows, batch) for batch in dict.fromkeys(work.sizes(jobs[0].node))]

    def _gradient(self, jobs: Sequence[Job], rows: Sequence[Rows], batch: int) -> Tensor:
        self.sizes = [batch]
        self.step(batch, False)  # whatever steps need is allocated
        epochs = [dict(job.node.epochs) for job in jobs]
        copies, zeros = self.admit(jobs, rows)
        for job, before in zip(jobs, epochs, strict=True):
            job.node.epochs = before
        with torch.no_grad():
            torch._foreach_zero_(zeros)
        copy_into([to for to, _ in copies], [of for _, of in copies])
        self.step(batch, False)
        found = (p.grad for own in self.parameters.values() for p in own.values())
        return torch.cat([gradient.flatten().float() for gradient in found if gradient is not None])

    def step(self, batch: int, keep: bool) -> None:
        """One step on the next rows of the order: what is captured."""
        terms = self._descend(self.at + torch.arange(batch, device=self.device))
        self.at.add_(batch)
        if keep:
            for name, parameter in self.parameters[self.work.names[0]].items():
                if parameter.grad is not None:
                    self.first.setdefault(name, torch.zeros_like(parameter)).copy_(parameter.grad)
        self._update()
        if not all(slot.settled for slot in self.slots):
            raise RuntimeError("the network assigns a buffer anew, instead of writing to it")
        values = torch.stack([value.detach() for named in terms.values() for value in named.values()], dim=-1)
        if self.total is None:
            self.terms = [(model, term) for model, named in terms.items() for term in named]
            self.total = torch.zeros_like(values)
        self.total.add_(values)

    def _descend(self, places: Tensor) -> dict[str, dict[str, Tensor]]:
        """Loss terms, and gradients on the parameters."""
        rows = self.order.index_select(0, places)
        columns = {n: c.index_select(0, rows) for n, c in self.columns.items()}
        if self.augment is not None:
            columns["x"] = self.augment.apply(columns["x"], self.drawn.index_select(0, places))
        if self.way.channels_last:
            columns = {n: _last(column) for n, column in columns.items()}
        batch = Data(classes=self.classes, **columns)
        loss = signature.with_numbers(self.work.loss, self.numbers) if self.cuda else self.work.loss
        return backward(self.work, loss, self.nets, batch, self.optimisers)

    def _update(self) -> None:
        update(self.transforms, self.parameters, self.aux, self.optimisers)

    def _warm(self) -> None:
        """Before the state is copied in: let everything be allocated that steps need, and capture what is missing."""
        keep = self.work.answer == "gradient"
        if not self.cuda:
            if self.total is None:
                with seeded("warming up"):
                    self.step(max(self.sizes), keep)
            return
        missing = [call for call in dict.fromkeys(self.plan) if call not in self.graphs]
        for call in missing:
            self.graphs[call] = self._capture(*call)
        self.fresh = self.fresh or bool(missing)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _capture(self, batch: int, steps: int, keep: bool) -> Any:
        graph = torch.cuda.CUDAGraph()
        default = torch.cuda.default_generators[self.device.index or 0]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.generator)  # dropout draws from the lane's own: graphs replay side by side
        try:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self.stream):
                self.at.zero_()
                self.step(batch, keep)  # a batch size that was never run may still need workspaces
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                for _ in range(steps):
                    self.step(batch, keep)
        finally:
            default.graphsafe_set_state(before)
        return graph

    def replay(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Run all steps; yields after each piece, so that lanes can be fed in turn."""
        if not self.cuda:
            with seeded(*_purpose(jobs[0])):
                for batch, steps, keep in self.plan:
                    for _ in range(steps):
                        self.step(batch, keep)
            return
        for call in self.plan:
            with torch.cuda.stream(self.stream):
                self.graphs[call].replay()
            yield

    def _room(self, aux: Any) -> Any:
        if isinstance(aux, Tensor):
            return self.zeros(*aux.shape, dtype=aux.dtype)
        return {key: self._room(value) for key, value in aux.items()} if isinstance(aux, Mapping) else aux


def _last(column: Tensor) -> Tensor:
    return column.contiguous(memory_format=torch.channels_last) if column.dim() == 4 else column


def _purpose(job: Job) -> tuple[object, ...]:
    return job.node.seed, job.node.id, job.node.round, "fit", job.tag


def _orders(node: Node, work: Fit, rows: Rows, sizes: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """The rows of all batches, and how their images are changed, as one at a time would draw them."""
    sizes, augment = list(sizes), rows.view.augment
    orders, drawn = [], []
    while sizes:
        epoch, at = node.epochs.get(work.data, 0), 0
        order = node.order(work.data, rows.count)
        while sizes and at + sizes[0] <= rows.count:
            at += sizes.pop(0)
        orders.append(order[:at])
        if augment is not None:
            draw = generator(node.seed, node.id, work.data, epoch, "augment")
            drawn.append(augment.draw(rows.count, draw)[:at])
    if len(orders) == 1:
        return orders[0], drawn[0] if drawn else None
    return torch.cat(orders), torch.cat(drawn) if drawn else None


def _parameters(augment: Augmentation | None) -> int:
    """How many numbers say how an image is changed."""
    return 0 if augment is None else augment.draw(1, torch.Generator()).shape[1]


def resident(optimiser: Optimiser, parameters: Any, cuda: bool) -> torch.optim.Optimizer | Descent:
    """An optimiser that stays with a lane: on a GPU one kernel, whose counters are on the device too."""
    trained = [p for p in parameters if p.requires_grad]
    if not trained:
        return optimiser.plain(trained)
    if not cuda:
        return optimiser.build(trained)
    capturable = {} if optimiser.name == "SGD" else {"capturable": True}
    return optimiser.build(trained, fused=True, **capturable)


def _copies(to: Any, of: Any) -> Pairs:
    if isinstance(to, Tensor):
        return [(to, of)]
    return [pair for key in to for pair in _copies(to[key], of[key])] if isinstance(to, Mapping) else []
