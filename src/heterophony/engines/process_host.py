"""Every reaction in a fresh process, from serialised state and mail: the template for remote engines.

What a child gets is bytes, and what it gives back is bytes. So a method that runs the same here and on the local
engine keeps nothing outside its node.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from heterophony.base import codec
from heterophony.compute.eager import WorkError
from heterophony.compute.workers import die_with_parent, leave_signals_to_parent
from heterophony.engines.door import Door
from heterophony.engines.host import Activation
from heterophony.engines.local_host import ReactionError, model_digest
from heterophony.engines.question import Answer, Question
from heterophony.engines.station import Station
from heterophony.federation import Federation
from heterophony.kernel.fields import Shape


class ProcessHost:
    """Holds nodes as bytes. Forked children start from the federation as it was built, never from a used node."""

    others: frozenset[str] = frozenset()

    def __init__(self, federation: Federation) -> None:
        if federation.compute.threads != 1:
            raise ValueError("processes of their own need threads = 1: torch's thread pool does not survive a fork")
        if federation.compute.device != "cpu":
            raise ValueError("processes of their own compute on the CPU: CUDA does not survive a fork")
        importlib.import_module("torch._dynamo")  # optimisers import it: once here, not in every child
        self.federation = federation
        self.door = Door(federation)
        self.states: dict[str, bytes] = {}  # of nodes that have reacted
        self.shapes: dict[str, Shape] = {}
        self.fork = multiprocessing.get_context("fork")

    def begin(self, activation: Activation) -> None:
        activation.due = activation.question.start  # what the reaction will ask for is known in the child only

    def step(self, activations: Sequence[Activation]) -> None:
        for activation in activations:
            answer, state = self._in_child(activation.question)
            activation.answer = self._answer(codec.unpack(answer))
            self.states[activation.node] = state

    def _in_child(self, question: Question) -> tuple[bytes, bytes]:
        """Return the answer and the node's new state, as a child process has packed them."""
        ours, theirs = self.fork.Pipe(duplex=False)
        asked, state = codec.pack(question.plain()), self.states.get(question.node)
        child = self.fork.Process(target=self._child, args=(theirs, asked, state), daemon=True)
        child.start()
        theirs.close()
        try:
            answer, after = ours.recv_bytes(), ours.recv_bytes()
        except EOFError:
            child.join()  # one that has ended says how
            where = f"node {question.node}, reaction {question.reaction!r}"
            raise ReactionError(f"{where}: its process died (exit {child.exitcode})") from None
        except BaseException:  # stopped at once
            child.kill()
            raise
        finally:
            ours.close()
            child.join()
        return answer, after

    def _child(self, pipe: Connection, asked: bytes, state: bytes | None) -> None:
        """Answer in a process of its own, from bytes to bytes."""
        try:
            leave_signals_to_parent()
            die_with_parent()
            question = Question.of(codec.unpack(asked))
            station = Station(self.federation.computed(workers=1))
            station.restore(question.node, None if state is None else codec.unpack(state))
            answer = station.react(question)
            pipe.send_bytes(codec.pack(answer.plain()))
            pipe.send_bytes(codec.pack(station.state(question.node)))
        except (ReactionError, WorkError) as error:
            pipe.send_bytes(codec.pack({"error": str(error)}))
            pipe.send_bytes(b"")

    def _answer(self, value: dict[str, Any]) -> Answer:
        if "error" in value:
            raise ReactionError(value["error"])
        return Answer.of(value, self.door.kinds)

    def shape(self, node: str) -> Shape:
        if node not in self.shapes:
            self.shapes[node] = self.door.shape(self.federation.node(node))
        return self.shapes[node]

    def state(self, node: str) -> dict[str, Any]:
        if node in self.states:
            return dict(codec.unpack(self.states[node]))
        return self.federation.node(node).state()

    def restore(self, node: str, state: dict[str, Any]) -> None:
        self.states[node] = codec.pack(state)

    def digest(self, node: str) -> bytes:
        return model_digest(self.state(node))
