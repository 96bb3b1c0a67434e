"""Reactions in a pool of Ray workers, each with a shard of nodes; message bodies go from worker to worker.

The driver has headers, sizes and references. After every reaction the node's new state is in the object store too,
where it outlives the worker (and, with a copy on the driver's machine, any other machine). So a worker holds nothing
that could be lost, moving a node means naming its state to another worker, and a reaction whose worker died runs again
from the state before it. It is part of the run when its report is: once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from heterophony.base import codec
from heterophony.engines.blob import INLINE, Blob
from heterophony.engines.host import Activation, Outcome
from heterophony.engines.local_host import ReactionError, model_digest
from heterophony.engines.placement import Placement
from heterophony.engines.ray_pool import Member, Pool, connect, ray
from heterophony.engines.ray_worker import Order, Report
from heterophony.engines.remote_body import Elsewhere
from heterophony.federation import Federation
from heterophony.kernel.fields import Shape
from heterophony.kernel.mailbox import swapped
from heterophony.kernel.message import Body, Send

log = logging.getLogger(__name__)
TRIES = 4  # a reaction whose workers die every time is to blame


@dataclass(eq=False)
class Call:
    """What one worker has been asked in one wave, and the stream of its answers."""

    worker: int
    activations: list[Activation]
    stream: Any = field(repr=False)
    cost: float = 0.0


class Gone(Exception):
    """A worker did not answer."""


class RayHost:
    """Holds nodes as references to their states."""

    others: frozenset[str] = frozenset()

    def __init__(self, federation: Federation, workers: int | None = None, address: str | None = None) -> None:
        connect(address, workers)
        self.federation, self.workers = federation, workers
        self.kinds = {kind.name: kind for kind in federation.method.kinds}
        self.states: dict[str, Blob] = {}  # of nodes that have reacted
        self.applied: dict[str, int] = {}  # by node, the last activation that is part of the run
        self.shapes: dict[str, Shape] = {}
        self.placement = Placement()
        self.holders: dict[str, int] = {}  # by node, the worker that has its present state
        self.calls: list[Call] = []
        self.leaving: dict[int, list[str]] = defaultdict(list)  # by worker, nodes that have moved away
        self.tries: dict[tuple[str, int], int] = {}
        self._pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.federation, self.workers)
        return self._pool

    @contextmanager
    def working(self) -> Iterator[None]:
        """Workers are there while a run needs them; what they did outlives them."""
        try:
            yield
        finally:
            if self._pool is not None:
                self._pool.close({call.worker for call in self.calls})
            self._pool, self.calls = None, []
            for known in (self.holders, self.leaving, self.placement.homes):
                known.clear()

    # -- reactions -------------------------------------------------------------------------------------------
    def begin(self, activation: Activation) -> None:
        activation.due = activation.start  # until a worker says more

    def step(self, activations: Sequence[Activation]) -> None:
        """Give new ones to workers, who say when each is due and compute on; or wait for those that are due first."""
        new = [activation for activation in activations if activation.frame is None]
        if new:
            for call in self._dealt(new):
                self._follow(call)
            return
        due = min(activation.due for activation in activations)
        for call in {id(a.frame): a.frame for a in activations if a.due == due}.values():
            self._follow(call)

    def _dealt(self, activations: Sequence[Activation]) -> list[Call]:
        """One call a worker; all of them work at the same time."""
        self._know([activation.node for activation in activations])
        there = self.pool.ready()
        busy = dict.fromkeys(there, 0.0)
        for call in self.calls:
            busy[call.worker] += call.cost
        tasks = [(activation.node, activation.reaction) for activation in activations]
        shards: dict[int, list[Activation]] = defaultdict(list)
        for activation, worker in zip(activations, self.placement.deal(tasks, busy), strict=True):
            shards[worker].append(activation)
        bodies: dict[int, Blob] = {}  # those that the driver has whole, after a resume: put once for all who read them
        return [self._call(worker, there[worker], shard, bodies) for worker, shard in shards.items()]

    def _call(self, worker: int, member: Member, shard: list[Activation], bodies: dict[int, Blob]) -> Call:
        parts: list[Any] = []
        places: dict[int, int] = {}

        def ticket(body: Body) -> Body:
            if id(body) not in places:
                places[id(body)] = len(parts)
                if not isinstance(body, Elsewhere) and id(body) not in bodies:
                    bodies[id(body)] = stored(codec.pack(body.whole()))
                parts.append((body.blob if isinstance(body, Elsewhere) else bodies[id(body)]).data)
            return Body({"part": places[id(body)]})

        orders = []
        for activation in shard:
            node, state = activation.node, None
            if self.holders.get(node) != worker and node in self.states:
                state = len(parts)
                parts.append(self.states[node].data)
            home = self.placement.homes.get(node)
            if home != worker and home is not None:
                self.leaving[home].append(node)
            self.placement.homes[node] = self.holders[node] = worker
            order = replace(activation, mail=swapped(activation.mail, lambda message: ticket(message.body)), frame=None)
            orders.append(Order(order, self.applied.get(node, 0), state))
        stream = member.actor.work.options(num_returns="streaming").remote(orders, self.leaving.pop(worker, []), *parts)
        cost = sum(self.placement.cost((activation.node, activation.reaction)) for activation in shard)
        call = Call(worker, shard, stream, cost)
        for activation in shard:
            activation.frame = call
        self.calls.append(call)
        return call

    def _follow(self, call: Call) -> None:
        """Take a call's next list of answers; if its worker is dead, all that it had is to be given out again."""
        if call not in self.calls:
            return  # lost with another call to the same worker
        waiting = [activation for activation in call.activations if activation.outcome is None]
        try:
            answers = self._next(call)
            if isinstance(answers, str):
                self.calls.remove(call)
                raise ReactionError(answers)
            blobs = self._blobs(call, answers)
        except Gone as error:
            self._lost(call.worker, str(error))
            return
        for activation, answer in zip(waiting, answers, strict=True):
            if isinstance(answer, Report):
                self._apply(activation, answer, blobs)
            else:
                activation.due = answer
        if all(activation.outcome is not None for activation in call.activations):
            self.calls.remove(call)
        done = [activation.outcome for activation in waiting if activation.outcome is not None]
        self._know([node for outcome in done for _, send in outcome.sends for node in send.to or ()])  # their doors

    def _apply(self, activation: Activation, report: Report, blobs: Iterator[Blob]) -> None:
        """What a reaction did becomes part of the run."""
        node = activation.node
        state, *bodies = (next(blobs) if data is None else Blob(data) for data in report.blobs)
        sends = [
            (at, Send(self.kinds[kind], to, round, Elsewhere(about, verdict, body)))
            for (at, kind, to, round, about, verdict), body in zip(report.outcome["sends"], bodies, strict=True)
        ]
        self.states[node], self.applied[node] = state, activation.number
        self.placement.observe((node, activation.reaction), report.seconds)
        activation.outcome, activation.frame = Outcome(**{**report.outcome, "sends": sends}), None
        self.tries.pop((node, activation.number), None)

    # -- answers ---------------------------------------------------------------------------------------------
    def _next(self, call: Call) -> Any:
        with _answering():
            return ray().get(next(call.stream))

    def _blobs(self, call: Call, answers: list[Report | float]) -> Iterator[Blob]:
        """What follows a list of answers apart. From another machine, a copy is brought to this one first."""
        large = sum(blob is None for answer in answers if isinstance(answer, Report) for blob in answer.blobs)
        if not large:
            return iter(())
        with _answering():
            refs = [next(call.stream) for _ in range(large)]
        self._next(call)  # the worker has lived to say that all of them are there
        if self.pool.members[call.worker].near:
            return iter([Blob(ref) for ref in refs])
        with _answering():
            return iter([Blob(ref, held) for ref, held in zip(refs, ray().get(refs), strict=True)])

    def _lost(self, worker: int, why: str) -> None:
        log.warning("worker %d is gone (%s); its reactions run again", worker, why)
        blamed = []
        for call in [call for call in self.calls if call.worker == worker]:
            self.calls.remove(call)
            for activation in call.activations:
                if activation.outcome is None:
                    activation.frame = None
                    key = activation.node, activation.number
                    self.tries[key] = self.tries.get(key, 0) + 1
                    if self.tries[key] >= TRIES:
                        blamed.append(f"node {activation.node}, reaction {activation.reaction!r}")
        if blamed:  # which of those that ran there together, nobody can say
            raise ReactionError(f"{' or '.join(blamed)}: its worker died {TRIES} times ({why})")
        self.placement.abandon(worker)
        self.holders = {node: holder for node, holder in self.holders.items() if holder != worker}
        self.leaving.pop(worker, None)
        self.pool.replace(worker)

    # -- what is known of nodes ------------------------------------------------------------------------------
    def _know(self, nodes: Sequence[str]) -> None:
        """Let workers build nodes that are new, and tell what the driver has to know of them."""
        while new := [node for node in nodes if node not in self.shapes]:
            there = self.pool.ready()
            self.placement.settle(new, there)
            asked = defaultdict(list)
            for node in new:
                asked[self.placement.homes[node]].append(node)
            refs = {worker: there[worker].actor.ask.remote("describe", own) for worker, own in asked.items()}
            for worker, ref in refs.items():
                try:
                    with _answering():
                        found = ray().get(ref)
                except Gone as error:
                    self._lost(worker, str(error))
                    continue
                for node, (weights, weight) in zip(asked[worker], found, strict=True):
                    self.placement.weights[node] = weight
                    self.shapes[node] = Shape(weights, self._view(node), self.federation.method.setting)

    def _view(self, node: str) -> Any:
        """Rows and classes of a node's views, asked for once, of whoever holds it."""
        known: dict[str, tuple[int, int | None] | None] = {}

        def view(name: str) -> tuple[int, int | None] | None:
            while name not in known:
                there = self.pool.ready()
                self.placement.settle([node], there)
                worker = self.placement.homes[node]
                try:
                    with _answering():
                        known[name] = ray().get(there[worker].actor.ask.remote("view", node, name))
                except Gone as error:
                    self._lost(worker, str(error))
            return known[name]

        return view

    def shape(self, node: str) -> Shape:
        self._know([node])
        return self.shapes[node]

    def state(self, node: str) -> dict[str, Any]:
        if node in self.states:
            return dict(codec.unpack(self.states[node].read()))
        return self.federation.computed(device="cpu").node(node).state()

    def restore(self, node: str, state: dict[str, Any]) -> None:
        self.states[node] = stored(codec.pack(state))
        self.holders.pop(node, None)

    def digest(self, node: str) -> bytes:
        return model_digest(self.state(node))


def stored(data: bytes) -> Blob:
    """Bytes of the driver's, where workers can read them."""
    import numpy as np

    return Blob(data) if len(data) <= INLINE else Blob(ray().put(np.frombuffer(data, np.uint8)))


@contextmanager
def _answering() -> Iterator[None]:
    """A worker or machine that died is `Gone`; what a worker raised itself goes on."""
    errors = ray().exceptions
    try:
        yield
    except StopIteration:
        raise Gone("it stopped in the middle of an answer") from None
    except (
        errors.RayActorError,
        errors.ObjectLostError,
        errors.NodeDiedError,
        errors.WorkerCrashedError,
        errors.OutOfMemoryError,
    ) as error:
        raise Gone(str(error).splitlines()[0]) from error
