"""A shard of nodes in a process of its own. Knows nothing of Ray: it answers orders, and holds nothing that is not
also kept outside of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from heterophony.base import codec
from heterophony.compute.eager import Eager, WorkError
from heterophony.compute.numerics import arithmetic
from heterophony.engines.blob import INLINE
from heterophony.engines.host import Activation
from heterophony.engines.local_host import LocalHost, ReactionError
from heterophony.engines.remote_body import outline
from heterophony.engines.shipping import Freight, unload
from heterophony.kernel.mailbox import swapped
from heterophony.kernel.message import Body


@dataclass(frozen=True)
class Order:
    """An activation to run, its mail's bodies and its node's state being numbers of the parts that come with it."""

    activation: Activation
    before: int  # the node's last activation: to any other state, this one must not be applied
    state: int | None  # None: the worker has it, or the node is as it was built


@dataclass(frozen=True)
class Report:
    """What came of an activation. Of `blobs` (the node's state, then a body for each send), None follows apart."""

    outcome: dict[str, Any]
    blobs: list[bytes | None]
    seconds: float


class Worker:
    """Holds nodes as a `LocalHost`, and computes all that it is given together."""

    def __init__(self, freight: Freight) -> None:
        self.federation = unload(freight).computed(workers=1)
        self.switches = ExitStack()
        self.switches.enter_context(arithmetic(self.federation))
        self.host = LocalHost(self.federation)
        self.applied: dict[str, int] = {}  # by node, the activation that its state comes from

    def close(self) -> None:
        """Put torch's switches back: the process may serve another federation."""
        self.switches.close()

    def describe(self, nodes: Sequence[str]) -> list[tuple[dict[str, Any], float]]:
        """What a door must know of nodes' models, and parameters x rows, for a first guess at their cost."""
        found = []
        view = getattr(getattr(self.federation.method, "local", None), "data", "train")
        for name in nodes:
            node = self.host.node(name)
            parameters = sum(p.numel() for module in node.models.values() for p in module.parameters())
            rows = 1
            with suppress(Exception):  # what is wrong with the data is said by the reaction that needs them
                rows = len(node.data[view]) if view in node.data else 1
            found.append((dict(self.host.shape(name).weights), float(max(parameters, 1) * max(rows, 1))))
        return found

    def view(self, node: str, name: str) -> tuple[int, int | None] | None:
        """Rows and classes of a node's data view."""
        return self.host.shape(node).view(name)

    def work(self, orders: Sequence[Order], leaving: Sequence[str], *parts: Any) -> Iterator[Any]:
        """Yield a list, each order's due moment or report; then, if some have yet to be computed, their reports.

        Blobs that a list of reports leaves out are yielded after it, and then None. A text is an error.
        """
        for node in leaving:
            self.host.release(node)
            self.applied.pop(node, None)
        body = cache(lambda part: Body(codec.unpack(memoryview(parts[part]))))  # one object, however many read it
        seconds: dict[str, float] = {}
        try:
            activations = [self._begin(order, parts, body, seconds) for order in orders]
            # an early send is in the report, so that it is waited for before the clock moves on
            done = [
                self._report(a, seconds) if a.outcome is not None else a.start if a.early else a.due
                for a in activations
            ]
            yield from _told(done)
            if rest := [a for a in activations if a.outcome is None]:
                self._compute(rest, seconds)
                yield from _told([self._report(a, seconds) for a in rest])
        except (ReactionError, WorkError) as error:
            yield str(error)

    def _begin(
        self, order: Order, parts: Sequence[Any], body: Callable[[int], Body], seconds: dict[str, float]
    ) -> Activation:
        began = time.perf_counter()
        activation = order.activation
        node = activation.node
        if order.state is not None:
            self.host.restore(node, codec.unpack(memoryview(parts[order.state])))
            self.applied[node] = order.before
        if self.applied.get(node, 0) != order.before:
            raise ReactionError(
                f"node {node}: activation {activation.number} is for its state after {order.before}, "
                f"this is that after {self.applied.get(node, 0)}"
            )
        activation.mail = swapped(activation.mail, lambda message: body(message.body["part"]))
        self.applied[node] = activation.number
        self.host.begin(activation)
        seconds[node] = time.perf_counter() - began
        return activation

    def _compute(self, activations: Sequence[Activation], seconds: dict[str, float]) -> None:
        """To the end: one after the other where that is how work is computed anyway, so that each is timed."""
        alone = isinstance(self.host.executor, Eager)
        for group in [[a] for a in activations] if alone else [list(activations)]:
            began, rest = time.perf_counter(), list(group)
            while rest:
                self.host.step(rest)
                rest = [a for a in rest if a.outcome is None]
            for activation in group:
                seconds[activation.node] += (time.perf_counter() - began) / len(group)

    def _report(self, activation: Activation, seconds: dict[str, float]) -> Report:
        outcome = activation.outcome
        assert outcome is not None
        sends, blobs = [], [codec.pack(self.host.state(activation.node))]
        for at, send in outcome.sends:
            about = {key: outline(value) for key, value in send.body.items()}
            sends.append((at, send.kind.name, send.to, send.round, about, send.kind.verdict(send.body)))
            blobs.append(codec.pack(send.body.whole()))
        return Report({**vars(outcome), "sends": sends}, list(blobs), seconds[activation.node])


def _told(items: list[Report | float]) -> Iterator[Any]:
    """The list with what is small, then what is large, apart: as arrays, which an object store holds as they are."""
    large = []
    for report in items:
        for place, blob in enumerate(report.blobs if isinstance(report, Report) else ()):
            if blob is not None and len(blob) > INLINE:
                assert isinstance(report, Report)
                report.blobs[place] = None
                large.append(blob)
    yield items
    for blob in large:
        yield np.frombuffer(blob, np.uint8)
    if large:
        yield None
