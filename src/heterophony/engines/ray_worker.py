"""A shard of nodes in a process of its own, which holds nothing that is not also kept outside of it.

It knows nothing of Ray: it is given assignments, and yields replies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from heterophony.base import codec
from heterophony.compute.eager import Eager, WorkError
from heterophony.compute.numerics import arithmetic
from heterophony.engines.blob import INLINE
from heterophony.engines.host import Activation
from heterophony.engines.local_host import ReactionError
from heterophony.engines.pieces import Changes, Path, joined
from heterophony.engines.question import Question
from heterophony.engines.remote_body import stand_in
from heterophony.engines.shipping import Shipment, unpack
from heterophony.engines.station import Station
from heterophony.kernel.mailbox import swapped
from heterophony.kernel.message import Body


@dataclass(frozen=True)
class Assignment:
    """A question to a worker, as a plain value; its mail's bodies are numbers of the parts that come with it."""

    question: dict[str, Any]
    before: int  # the node's last activation: to any other state, the reaction must not be applied
    state: dict[Path, int] | None  # its pieces among the parts; None: the worker has it, or the node is as it was built


@dataclass(frozen=True)
class Reply:
    """What came of an assignment."""

    answer: dict[str, Any]  # a plain value, whose bodies are what stands in for them
    pieces: list[Path]  # all that the node's state consists of now
    changed: list[Path]  # those that the reaction has changed
    blobs: list[bytes | None]  # the changed pieces, then a body for each send; None follows apart
    seconds: float


class Worker:
    """A station with a shard of the nodes, which computes all that it is given together."""

    def __init__(self, shipment: Shipment) -> None:
        self.federation = unpack(shipment).computed(workers=1)
        self.switches = ExitStack()
        self.switches.enter_context(arithmetic(self.federation))
        self.station = Station(self.federation)
        self.changes = Changes()
        self.applied: dict[str, int] = {}  # by node, the activation that its state comes from

    def close(self) -> None:
        """Put torch's switches back: the process may serve another federation."""
        self.switches.close()

    def describe(self, nodes: Sequence[str]) -> list[tuple[dict[str, Any], float]]:
        """Return what a door must know of nodes' models, and each one's size: parameters x private rows."""
        found = []
        for name in nodes:
            node = self.station.host.node(name)
            parameters = sum(p.numel() for module in node.models.values() for p in module.parameters())
            rows = 1
            with suppress(Exception):  # what is wrong with the data is said by the reaction that needs them
                rows = len(node.data["train"]) if "train" in node.data else 1
            size = float(max(parameters, 1) * max(rows, 1))
            found.append((dict(self.station.shape(name).weights), size))
        return found

    def view(self, node: str, name: str) -> tuple[int, int | None] | None:
        """Return rows and classes of a node's data view."""
        return self.station.shape(node).view(name)

    def work(self, assignments: Sequence[Assignment], leaving: Sequence[str], *parts: Any) -> Iterator[Any]:
        """Yield a list, each reaction's due moment or reply; then, if some have yet to be computed, their replies.

        Blobs that a list of replies leaves out are yielded after it, and then None. A text is an error.
        """
        for node in leaving:
            self.station.host.release(node)
            self.changes.forget(node)
            self.applied.pop(node, None)
        body = cache(lambda part: Body(codec.unpack(memoryview(parts[part]))))  # one object, however many read it
        seconds: dict[str, float] = {}
        try:
            activations = [self._begin(assignment, parts, body, seconds) for assignment in assignments]
            yield from _told([self._so_far(activation, seconds) for activation in activations])
            rest = [activation for activation in activations if activation.answer is None]
            if rest:
                self._compute(rest, seconds)
                yield from _told([self._reply(activation, seconds) for activation in rest])
        except (ReactionError, WorkError) as error:
            yield str(error)

    def _begin(
        self, assignment: Assignment, parts: Sequence[Any], body: Callable[[int], Body], seconds: dict[str, float]
    ) -> Activation:
        began = time.perf_counter()
        question = Question.of(assignment.question)
        node = question.node
        if assignment.state is not None:
            pieces = {path: codec.unpack(memoryview(parts[part])) for path, part in assignment.state.items()}
            self.station.restore(node, joined(pieces))
            self.changes.forget(node)
            self.applied[node] = assignment.before
        if self.applied.get(node, 0) != assignment.before:
            raise ReactionError(
                f"node {node}: activation {question.number} is for its state after {assignment.before}, "
                f"this is that after {self.applied.get(node, 0)}"
            )
        mail = swapped(question.mail, lambda message: body(message.body["part"]))
        self.applied[node] = question.number
        activation = self.station.begin(replace(question, mail=mail))
        seconds[node] = time.perf_counter() - began
        return activation

    def _so_far(self, activation: Activation, seconds: dict[str, float]) -> Reply | float:
        """Return the reply to a reaction that is done already, and of another the moment at which it is due."""
        if activation.answer is not None:
            return self._reply(activation, seconds)
        if activation.early:  # an early send is in the reply, so that it is waited for before the clock moves on
            return activation.question.start
        return activation.due

    def _compute(self, activations: Sequence[Activation], seconds: dict[str, float]) -> None:
        """Compute to the end: one by one where that is how work is computed anyway, so that each is timed."""
        alone = isinstance(self.station.host.executor, Eager)
        for group in [[a] for a in activations] if alone else [list(activations)]:
            began = time.perf_counter()
            self.station.finish(group)
            for activation in group:
                seconds[activation.node] += (time.perf_counter() - began) / len(group)

    def _reply(self, activation: Activation, seconds: dict[str, float]) -> Reply:
        answer, node = activation.answer, activation.node
        assert answer is not None
        pieces = self.changes.packed(node, self.station.state(node))
        changed = {path: data for path, data in pieces.items() if data is not None}
        bodies = [codec.pack(send.body.whole()) for send in answer.sends]
        bound = self.federation.bound
        told = replace(answer, sends=tuple(replace(send, body=stand_in(send, bound)) for send in answer.sends))
        blobs: list[bytes | None] = [*changed.values(), *bodies]
        return Reply(told.plain(), list(pieces), list(changed), blobs, seconds[node])


def _told(items: list[Reply | float]) -> Iterator[Any]:
    """Yield the list with what is small, then what is large, apart: as arrays, which an object store holds as such."""
    large = []
    for reply in items:
        if not isinstance(reply, Reply):
            continue
        for place, blob in enumerate(reply.blobs):
            if blob is not None and len(blob) > INLINE:
                reply.blobs[place] = None
                large.append(blob)
    yield items
    for blob in large:
        yield np.frombuffer(blob, np.uint8)
    if large:
        yield None
