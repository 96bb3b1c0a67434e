"""Reactions in a pool of Ray workers, each with a shard of nodes; message bodies go from worker to worker.

The driver has headers, sizes and references. After every reaction the node's new state is in the object store too,
where it outlives the worker (and, with a copy on the driver's machine, any other machine). So a worker holds nothing
that could be lost, moving a node means naming its state to another worker, and a reaction whose worker died runs again
from the state before it. It is part of the run when its reply is: once.
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
from heterophony.engines.door import Door
from heterophony.engines.host import Activation
from heterophony.engines.local_host import ReactionError, model_digest
from heterophony.engines.pieces import Path, joined, split
from heterophony.engines.placement import Placement
from heterophony.engines.question import Answer
from heterophony.engines.ray_pool import Pool, PoolWorker, connect, ray
from heterophony.engines.ray_worker import Assignment, Reply
from heterophony.engines.remote_body import RemoteBody
from heterophony.federation import Federation
from heterophony.kernel.fields import Shape
from heterophony.kernel.mailbox import swapped
from heterophony.kernel.message import Body

log = logging.getLogger(__name__)
TRIES = 4  # a reaction whose workers die every time is to blame


@dataclass(eq=False)
class Request:
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
        self.door = Door(federation)
        self.states: dict[str, dict[Path, Blob]] = {}  # the pieces of nodes that have reacted
        self.applied: dict[str, int] = {}  # by node, the last activation that is part of the run
        self.shapes: dict[str, Shape] = {}
        self.placement = Placement()
        self.holders: dict[str, int] = {}  # by node, the worker that has its present state
        self.requests: list[Request] = []
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
        """Keep workers while a run needs them; what they did outlives them."""
        try:
            yield
        finally:
            if self._pool is not None:
                self._pool.close({request.worker for request in self.requests})
            self._pool, self.requests = None, []
            for known in (self.holders, self.leaving, self.placement.homes):
                known.clear()

    # -- reactions -------------------------------------------------------------------------------------------
    def begin(self, activation: Activation) -> None:
        activation.due = activation.question.start  # until a worker says more

    def step(self, activations: Sequence[Activation]) -> None:
        """Give new ones to workers, who say when each is due and compute on; or wait for those that are due first."""
        new = [activation for activation in activations if activation.frame is None]
        if new:
            for request in self._dealt(new):
                self._follow(request)
            return
        due = min(activation.due for activation in activations)
        for request in {id(a.frame): a.frame for a in activations if a.due == due}.values():
            self._follow(request)

    def _dealt(self, activations: Sequence[Activation]) -> list[Request]:
        """Deal activations, one request a worker; all of them work at the same time."""
        self._know([activation.node for activation in activations])
        there = self.pool.ready()
        busy = dict.fromkeys(there, 0.0)
        for request in self.requests:
            busy[request.worker] += request.cost
        tasks = [(activation.node, activation.question.reaction) for activation in activations]
        shards: dict[int, list[Activation]] = defaultdict(list)
        for activation, worker in zip(activations, self.placement.deal(tasks, busy), strict=True):
            shards[worker].append(activation)
        bodies: dict[int, Blob] = {}  # those that the driver has whole, after a resume: put once for all who read them
        return [self._request(worker, there[worker], shard, bodies) for worker, shard in shards.items()]

    def _request(self, worker: int, member: PoolWorker, shard: list[Activation], bodies: dict[int, Blob]) -> Request:
        """Ask a worker for all that it was dealt. What it needs beside the questions comes as numbered parts."""
        parts: list[Any] = []
        places: dict[int, int] = {}

        def ticket(body: Body) -> Body:
            if id(body) not in places:
                places[id(body)] = len(parts)
                if not isinstance(body, RemoteBody) and id(body) not in bodies:
                    bodies[id(body)] = stored(codec.pack(body.whole()))
                parts.append((body.blob if isinstance(body, RemoteBody) else bodies[id(body)]).data)
            return Body({"part": places[id(body)]})

        assignments = []
        for activation in shard:
            node, state = activation.node, None
            if self.holders.get(node) != worker and node in self.states:
                state = {}
                for path, blob in self.states[node].items():
                    state[path] = len(parts)
                    parts.append(blob.data)
            home = self.placement.homes.get(node)
            if home != worker and home is not None:
                self.leaving[home].append(node)
            self.placement.homes[node] = self.holders[node] = worker
            mail = swapped(activation.question.mail, lambda message: ticket(message.body))
            question = replace(activation.question, mail=mail).plain()
            assignments.append(Assignment(question, self.applied.get(node, 0), state))
        asked = member.actor.work.options(num_returns="streaming")
        stream = asked.remote(assignments, self.leaving.pop(worker, []), *parts)
        cost = sum(self.placement.cost((activation.node, activation.question.reaction)) for activation in shard)
        request = Request(worker, shard, stream, cost)
        for activation in shard:
            activation.frame = request
        self.requests.append(request)
        return request

    def _follow(self, request: Request) -> None:
        """Take a request's next list of answers; if its worker is dead, all that it had is to be given out again."""
        if request not in self.requests:
            return  # lost with another request to the same worker
        waiting = [activation for activation in request.activations if activation.answer is None]
        try:
            answers = self._next(request)
            if isinstance(answers, str):
                self.requests.remove(request)
                raise ReactionError(answers)
            blobs = self._blobs(request, answers)
        except Gone as error:
            self._lost(request.worker, str(error))
            return
        for activation, answer in zip(waiting, answers, strict=True):
            if isinstance(answer, Reply):
                self._apply(activation, answer, blobs)
            else:
                activation.due = answer
        if all(activation.answer is not None for activation in request.activations):
            self.requests.remove(request)
        self._know_receivers([activation.answer for activation in waiting if activation.answer is not None])

    def _know_receivers(self, answers: Sequence[Answer]) -> None:
        """Ask for what the doors of those must know to whom these answers send."""
        self._know([node for answer in answers for send in answer.sends for node in send.to or ()])

    def _apply(self, activation: Activation, reply: Reply, blobs: Iterator[Blob]) -> None:
        """Make what a reaction did part of the run."""
        node = activation.node
        there = [next(blobs) if data is None else Blob(data) for data in reply.blobs]
        changed = dict(zip(reply.changed, there, strict=False))
        bodies = there[len(reply.changed) :]
        answer = Answer.of(reply.answer, self.door.kinds)
        sends = [
            replace(send, body=RemoteBody(send.body["about"], send.body["verdict"], body))
            for send, body in zip(answer.sends, bodies, strict=True)
        ]
        known = self.states.get(node, {})
        self.states[node] = {path: changed[path] if path in changed else known[path] for path in reply.pieces}
        self.applied[node] = activation.question.number
        self.placement.observe((node, activation.question.reaction), reply.seconds)
        activation.answer, activation.frame = replace(answer, sends=tuple(sends)), None
        self.tries.pop((node, activation.question.number), None)

    # -- answers ---------------------------------------------------------------------------------------------
    def _next(self, request: Request) -> Any:
        with _answering():
            return ray().get(next(request.stream))

    def _blobs(self, request: Request, answers: list[Reply | float]) -> Iterator[Blob]:
        """Return what follows a list of replies apart. From another machine, a copy is brought to this one first."""
        large = sum(blob is None for answer in answers if isinstance(answer, Reply) for blob in answer.blobs)
        if not large:
            return iter(())
        with _answering():
            refs = [next(request.stream) for _ in range(large)]
        self._next(request)  # the worker has lived to say that all of them are there
        if self.pool.members[request.worker].near:
            return iter([Blob(ref) for ref in refs])
        with _answering():
            return iter([Blob(ref, held) for ref, held in zip(refs, ray().get(refs), strict=True)])

    def _lost(self, worker: int, why: str) -> None:
        log.warning("worker %d is gone (%s); its reactions run again", worker, why)
        blamed = []
        for request in [request for request in self.requests if request.worker == worker]:
            self.requests.remove(request)
            for activation in request.activations:
                if activation.answer is None:
                    activation.frame = None
                    key = activation.node, activation.question.number
                    self.tries[key] = self.tries.get(key, 0) + 1
                    if self.tries[key] >= TRIES:
                        blamed.append(f"node {activation.node}, reaction {activation.question.reaction!r}")
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
                for node, (weights, size) in zip(asked[worker], found, strict=True):
                    self.placement.sizes[node] = size
                    self.shapes[node] = Shape(weights, self._view(node), self.federation.method.setting)

    def _view(self, node: str) -> Any:
        """Return a function that tells rows and classes of a node's views; each is asked for once."""
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
            return joined({path: codec.unpack(blob.read()) for path, blob in self.states[node].items()})
        return self.federation.computed(device="cpu").node(node).state()

    def restore(self, node: str, state: dict[str, Any]) -> None:
        self.states[node] = {path: stored(codec.pack(piece)) for path, piece in split(state).items()}
        self.holders.pop(node, None)

    def digest(self, node: str) -> bytes:
        return model_digest(self.state(node))


def stored(data: bytes) -> Blob:
    """Put bytes of the driver's where workers can read them."""
    import numpy as np

    return Blob(data) if len(data) <= INLINE else Blob(ray().put(np.frombuffer(data, np.uint8)))


@contextmanager
def _answering() -> Iterator[None]:
    """Raise `Gone` where a worker or a machine has died; what a worker raised itself goes on."""
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
