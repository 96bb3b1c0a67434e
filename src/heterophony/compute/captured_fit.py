"""A captured fit: networks, optimisers and rows at fixed addresses, and graphs of the steps on them.

A node's state is copied in, the captured steps are replayed, and the state is copied back. So a graph that was captured
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
from heterophony.compute.compiled import in_batches_of, without_dropout
from heterophony.compute.eager import (
    Job,
    Net,
    backward,
    in_precision,
    kept,
    nets_of,
    on_device,
    part_of,
    teacher,
    transforms_of,
    untrained,
    update,
)
from heterophony.compute.fit_program import capacity
from heterophony.data.augment import Augmentation
from heterophony.data.table import Data
from heterophony.kernel.freezing import frozen_names, in_training
from heterophony.kernel.node import Node, Slot, copy_into, laid_out
from heterophony.kernel.optimisers import Descent, Optimiser
from heterophony.kernel.work import Fit, Fitted

CHUNKS = (16, 4, 1)  # steps in one graph: long ones spare the host, short ones fill up
DEPTHS = (24, 64)  # a network of more tensors than these has shorter ones: its step is long, and so is capturing it
TRIAL = 4  # steps that are timed as one graph, at most
Pairs = list[tuple[Tensor, Tensor]]  # (to, from)


class TrainingRows:
    """What a fit trains on: a view's columns, which of its rows (None is all), and further columns."""

    def __init__(self, node: Node, work: Fit) -> None:
        self.view = node.data.placed(work.data)
        self.rows = work.rows
        self.extra = on_device(node.device, work.extra)
        self.count = len(self.view) if work.rows is None else len(work.rows)

    @property
    def form(self) -> tuple[tuple[str, tuple[int, ...], torch.dtype], ...]:
        """Return name, shape of a row and type of each column, as a fit reads them."""
        columns = {**self.view.columns, **self.extra}
        read = None if self.view.levels is None or "x" in self.extra else self.view.levels.dtype
        return tuple(
            (name, tuple(column.shape[1:]), read if name == "x" and read else column.dtype)
            for name, column in columns.items()
        )

    def column(self, name: str, chosen: Tensor | None) -> Tensor:
        """Return one column of the chosen rows. Images that are kept as bytes are converted to floats first."""
        if name in self.extra:
            given: Tensor = self.extra[name]
            return given
        column = self.view.columns[name] if chosen is None else self.view.columns[name].index_select(0, chosen)
        return self.view.read(column) if name == "x" else column


class Losses(Mapping[str, dict[str, float]]):
    """The mean loss terms of a fit, by model. They are read from the device on first use: reading waits for it."""

    def __init__(self, totals: Callable[[], list[float]], terms: Sequence[tuple[str, str]], steps: int) -> None:
        self.totals, self.terms, self.steps = totals, terms, steps

    @cached_property
    def known(self) -> dict[str, dict[str, float]]:
        """Return the means, read once."""
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
    """Return which graphs to replay in turn, each as (batch, steps, whether the gradient is kept).

    Arguments:
        sizes: of all batches, in order.
        apart: whether the first step has a graph of its own, because its gradient is asked for.
        tensors: how many the networks have; deep ones get shorter graphs.
    """
    too_deep_for = sum(tensors > depth for depth in DEPTHS)
    chunks = CHUNKS[too_deep_for:]
    calls = [(sizes[0], 1, True)] if apart and sizes else []
    for batch, run in groupby(sizes[len(calls) :]):
        left = len(list(run))
        for chunk in chunks:
            calls += [(batch, chunk, False)] * (left // chunk)
            left %= chunk
    return calls


class SharedStream:
    """A stream, and the memory that graphs on it need between their first and last kernel.

    Captured fits that need not run side by side share it. They may be replayed in any order, since nothing that
    outlives a replay is in that memory.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()


class CapturedFit:
    """Room for fits of one program: for one, or as a stack (see `stack.py`) for several that step together.

    Arguments:
        job: a fit of that program; its networks are copied.
        rows: what it trains on.
        precision: "fp32", "tf32" or "bf16".
        way: the layout, and whether the networks are compiled.
        seats: how many fits step together; 1 unless it is a stack.
        shared_stream: the stream and memory of other captured fits that need not run beside this one.
        dropout: whether networks drop units; without, two ways can be compared.
    """

    def __init__(
        self,
        job: Job,
        rows: TrainingRows,
        precision: str = "fp32",
        way: Way = BRANCHES,
        seats: int = 1,
        shared_stream: SharedStream | None = None,
        dropout: bool = True,
    ) -> None:
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        self.work, self.device, self.precision = work, torch.device(node.device), precision
        self.way, self.seats, self.dropout = way, seats, dropout
        self.cuda = self.device.type == "cuda"
        self.task, self.transforms = rows.view.task, transforms_of(work)
        self._build({name: node.models[name] for name in (*work.names, *work.teachers)})
        self.places = self._places()
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
        self.shared_stream = shared_stream
        if self.cuda:
            self.shared_stream = shared_stream or SharedStream(self.device)
            self.stream, self.pool = self.shared_stream.stream, self.shared_stream.pool
            self.generator = torch.Generator(self.device)

    def _build(self, modules: Mapping[str, nn.Module]) -> None:
        """Make networks and optimisers of its own."""
        work = self.work
        copies = self._copies(modules)
        if self.cuda:  # on a CPU, as the node has it
            layout = torch.channels_last if self.way.channels_last else torch.contiguous_format
            for module in copies.values():
                laid_out(module, layout)
        self.slots = [Slot(module) for module in copies.values()]
        self.tensors = {name: slot.tensors() for name, slot in zip(copies, self.slots, strict=True)}
        self.parameters = {name: dict(copies[name].named_parameters()) for name in work.names}
        self.optimisers = {
            n: lasting_optimiser(work.optimiser, p.values(), self.cuda) for n, p in self.parameters.items()
        }

        def ask(name: str, path: str) -> Net:
            part = part_of(copies[name], path)
            net = in_batches_of(work.batch or 1, part) if self.way.compiled else part
            return in_precision(net if name in work.names else teacher(net), self.precision)

        self.nets = nets_of(work, ask)

    def _copies(self, modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
        copies = {
            name: in_training(deepcopy(module)) if name in self.work.names else deepcopy(module).eval()
            for name, module in modules.items()
        }
        if self.work.only is not None:
            for parameter in untrained(self.work, copies[self.work.names[0]]):
                parameter.requires_grad_(False)
        return copies if self.dropout else {name: without_dropout(module) for name, module in copies.items()}

    def _places(self) -> list[dict[str, list[Tensor]]]:
        """Return where tensors are, by seat and model, in the order of a node's own."""
        return [{name: [tensor.detach() for tensor in own.values()] for name, own in self.tensors.items()}]

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Return a tensor for all seats, filled with zeros."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def seat(self, tensor: Tensor, i: int) -> Tensor:
        """Return the part of a tensor that belongs to the i-th fit."""
        return tensor

    # -- in and out ------------------------------------------------------------------------------------------
    def enter(self, jobs: Sequence[Job], rows: Sequence[TrainingRows]) -> tuple[Pairs, list[Tensor]]:
        """Take nodes' work. Return what is to be copied in, and what is to be set to zero."""
        self.prepare(jobs[0])
        return self.admit(jobs, rows)

    def admit(self, jobs: Sequence[Job], rows: Sequence[TrainingRows]) -> tuple[Pairs, list[Tensor]]:
        """Do the same where everything is prepared."""
        work = self.work
        copies: Pairs = []
        for i, (job, own) in enumerate(zip(jobs, rows, strict=True)):
            copies += self._seat(i, job, own)
        orders: list[Tensor] = []
        drawn: list[Tensor] = []
        for job, own in zip(jobs, rows, strict=True):
            order, changes = _orders(job.node, job.work, own, self.sizes)  # type: ignore[arg-type]
            orders.append(order)
            if changes is not None:
                drawn.append(changes)
        self._put(self.order, orders)
        if self.augment is not None:
            self._put(self.drawn, drawn)
        zeros = [self.at] + ([self.total] if self.total is not None else [])
        self._set_rate(jobs[0])
        stateful = any(optimiser.state for optimiser in self.optimisers.values())
        for i, job in enumerate(jobs if stateful else ()):
            for name in work.names:
                put, clear = self._moments(i, job, name)
                copies += put
                zeros += clear
        if self.cuda:
            self.generator.manual_seed(derive(*_purpose(jobs[0])))
        return copies, zeros

    def prepare(self, job: Job, trial: bool = False) -> None:
        """Have everything ready for such a fit, before any state comes in. Nothing of the node changes.

        With `trial`, only the few steps that are timed are made ready.
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

    def _seat(self, i: int, job: Job, rows: TrainingRows) -> Pairs:
        """Return what is to be copied in for the i-th fit."""
        node, work = job.node, job.work
        assert isinstance(work, Fit)
        copies: Pairs = []
        for name, own in self.places[i].items():
            copies += zip(own, node.slots[name].tensors().values(), strict=True)
        if work.aux:
            copies += [(self.seat(to, i), of) for to, of in _copies(self.aux, work.aux)]
        for name, number in signature.numbers(work.loss).items():
            self.seat(self.numbers[name], i).fill_(number)
        copies += self._stage(i, rows)
        return copies

    def _set_rate(self, job: Job) -> None:
        """Let the optimisers step at this fit's rate, where it is another one from round to round."""
        how = job.work.optimiser  # type: ignore[union-attr]
        if not how.changing:
            return
        for optimiser in self.optimisers.values():
            for group in optimiser.param_groups if isinstance(optimiser, torch.optim.Optimizer) else ():
                if torch.is_tensor(group["lr"]):  # graphs read it there
                    group["lr"].fill_(how.lr)
                else:
                    group["lr"] = how.lr

    def _put(self, to: Tensor, rows: Sequence[Tensor]) -> None:
        """Write every seat's rows, which are equally many, at once."""
        to[: len(rows[0])].copy_(rows[0], non_blocking=True)

    def _stage(self, i: int, rows: TrainingRows) -> Pairs:
        """Return what is to be copied so that the graphs find the rows; nothing where they are there already."""
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
        """Return what is to be copied and set to zero for an optimiser's state: as the node kept it, or fresh."""
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
        """Give nodes their optimiser states back, and return what of their models is to be copied out."""
        copies: Pairs = []
        for i, job in enumerate(jobs):
            for name in self.work.names:
                copies += zip(job.node.slots[name].tensors().values(), self.places[i][name], strict=True)
                key = kept(job.work, name)  # type: ignore[arg-type]
                if key is not None:
                    job.node.optimisers[key] = self._states(i, name, job.node.optimisers.get(key, {}))
        return copies

    def _states(self, i: int, name: str, before: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return an optimiser's state for the i-th fit, by parameter. What is not trained now stays as it was kept."""
        state = self.optimisers[name].state
        found: dict[str, dict[str, Any]] = {}
        for n, parameter in self.parameters[name].items():
            if parameter in state:
                found[n] = {part: self._out(value, i) for part, value in state[parameter].items()}
            elif n in before:
                found[n] = before[n]
        return found

    def _out(self, value: Any, i: int) -> Any:
        """Return a copy of the i-th fit's part of a state. Counters, which have no dimension, belong to all."""
        if not torch.is_tensor(value):
            return value
        return (self.seat(value, i) if value.dim() else value).clone()

    def fitted(self, i: int, job: Job, totals: Callable[[], list[float]]) -> Fitted:
        """Return the answer to the i-th fit, before its state goes back. `totals` reads the sums of the loss terms."""
        losses = Losses(totals, self.terms, len(self.sizes))
        first = self.work.names[0]
        gradient = displacement = None
        if self.work.answer == "gradient":
            gradient = {n: self.seat(g, i).clone() for n, g in self.first.items()}
        elif self.work.answer == "displacement":
            still = frozen_names(job.node.models[first])
            before = {n: p for n, p in job.node.models[first].named_parameters() if n not in still}
            after = self.parameters[first]
            displacement = {n: p.detach() - self.seat(after[n], i).detach() for n, p in before.items()}
        return Fitted(losses, len(self.sizes), gradient, displacement)

    # -- steps -----------------------------------------------------------------------------------------------
    def gradients(self, jobs: Sequence[Job], rows: Sequence[TrainingRows]) -> list[Tensor]:
        """Return the gradients of a first step of these fits, by size of a batch. Their nodes stay as they are."""
        work = jobs[0].work
        assert isinstance(work, Fit)
        self.work = work
        return [self._gradient(jobs, rows, batch) for batch in dict.fromkeys(work.sizes(jobs[0].node))]

    def _gradient(self, jobs: Sequence[Job], rows: Sequence[TrainingRows], batch: int) -> Tensor:
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
        """Take one step on the next rows of the order. This is what is captured."""
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
        """Return the loss terms, and leave gradients on the parameters."""
        rows = self.order.index_select(0, places)
        columns = {n: c.index_select(0, rows) for n, c in self.columns.items()}
        if self.augment is not None:
            columns["x"] = self.augment.apply(columns["x"], self.drawn.index_select(0, places))
        if self.way.channels_last:
            columns = {n: _last(column) for n, column in columns.items()}
        batch = Data.of_columns(columns, self.task)
        loss = signature.with_numbers(self.work.loss, self.numbers) if self.cuda else self.work.loss
        return backward(self.work, loss, self.nets, batch, self.optimisers)

    def _update(self) -> None:
        update(self.transforms, self.parameters, self.aux, self.optimisers, self.work.optimiser.clip)

    def _warm(self) -> None:
        """Let everything be allocated that steps need, and capture what is missing, before the state is copied in."""
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
        """Return a graph of so many steps."""
        graph = torch.cuda.CUDAGraph()
        default = torch.cuda.default_generators[self.device.index or 0]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self.generator)  # graphs replay side by side: dropout draws from its own
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
        """Run all steps. Yield after each graph, so that several captured fits can be fed in turn."""
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
        """Return tensors of the same form for all seats."""
        if isinstance(aux, Tensor):
            return self.zeros(*aux.shape, dtype=aux.dtype)
        return {key: self._room(value) for key, value in aux.items()} if isinstance(aux, Mapping) else aux


def _last(column: Tensor) -> Tensor:
    """Return images with their channels last."""
    return column.contiguous(memory_format=torch.channels_last) if column.dim() == 4 else column


def _purpose(job: Job) -> tuple[object, ...]:
    """Return what the randomness of a fit follows from."""
    return job.node.seed, job.node.id, job.node.round, "fit", job.tag


def _orders(node: Node, work: Fit, rows: TrainingRows, sizes: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Return the rows of all batches, and how their images are changed, as one at a time would draw them."""
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
    """Return how many numbers say how an image is changed."""
    return 0 if augment is None else augment.draw(1, torch.Generator()).shape[1]


def lasting_optimiser(optimiser: Optimiser, parameters: Any, cuda: bool) -> torch.optim.Optimizer | Descent:
    """Return an optimiser that stays with a captured fit. On a GPU its step is one kernel."""
    trained = [p for p in parameters if p.requires_grad]
    if not trained:
        return optimiser.plain(trained)
    if not cuda:
        return optimiser.build(trained)
    capturable = {} if optimiser.name == "SGD" else {"capturable": True}
    lr = torch.full((), optimiser.lr, device=trained[0].device) if optimiser.changing else None
    return optimiser.build(trained, lr=lr, fused=True, **capturable)


def _copies(to: Any, of: Any) -> Pairs:
    """Return pairs of the tensors in two structures of one form."""
    if isinstance(to, Tensor):
        return [(to, of)]
    if not isinstance(to, Mapping):
        return []
    return [pair for key in to for pair in _copies(to[key], of[key])]
