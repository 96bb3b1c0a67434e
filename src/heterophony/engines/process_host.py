"""Every reaction in a fresh process, from serialised state and mail: the template for remote engines.

What a child gets is bytes, and what it gives back is bytes. So a method that runs the same here and on the local
engine keeps nothing outside its node.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from heterophony.base import codec
from heterophony.compute.eager import WorkError
from heterophony.compute.workers import die_with_parent, leave_signals_to_parent
from heterophony.engines.host import Activation, Outcome
from heterophony.engines.local_host import LocalHost, ReactionError, model_digest
from heterophony.engines.wire import mail_of, mail_value, outcome_value, sends_of
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
        self.states: dict[str, bytes] = {}  # of nodes that have reacted
        self.shapes: dict[str, Shape] = {}
        self.fork = multiprocessing.get_context("fork")

    def begin(self, activation: Activation) -> None:
        activation.due = activation.start  # what the reaction will ask for is known in the child only

    def step(self, activations: Sequence[Activation]) -> None:
        for activation in activations:
            outcome, state = self._in_child(activation)
            activation.outcome = self._outcome(codec.unpack(outcome))
            self.states[activation.node] = state

    def _in_child(self, activation: Activation) -> tuple[bytes, bytes]:
        mail = codec.pack(mail_value(activation.mail))
        state = self.states.get(activation.node)
        ours, theirs = self.fork.Pipe(duplex=False)
        order = replace(activation, mail=None)
        child = self.fork.Process(target=self._child, args=(theirs, order, mail, state), daemon=True)
        child.start()
        theirs.close()
        try:
            outcome, after = ours.recv_bytes(), ours.recv_bytes()
        except EOFError:
            child.join()  # one that has ended says how
            where = f"node {activation.node}, reaction {activation.reaction!r}"
            raise ReactionError(f"{where}: its process died (exit {child.exitcode})") from None
        except BaseException:  # stopped at once
            child.kill()
            raise
        finally:
            ours.close()
            child.join()
        return outcome, after

    def _child(self, pipe: Connection, order: Activation, mail: bytes, state: bytes | None) -> None:
        try:
            leave_signals_to_parent()
            die_with_parent()
            host = LocalHost(self.federation.computed(workers=1))
            if state is not None:
                host.restore(order.node, codec.unpack(state))
            order.mail = mail_of(codec.unpack(mail))
            host.begin(order)
            while order.outcome is None:
                host.step([order])
            pipe.send_bytes(codec.pack(outcome_value(order.outcome)))
            pipe.send_bytes(codec.pack(host.state(order.node)))
        except (ReactionError, WorkError) as error:
            pipe.send_bytes(codec.pack({"error": str(error)}))
            pipe.send_bytes(b"")

    def _outcome(self, value: dict[str, Any]) -> Outcome:
        if "error" in value:
            raise ReactionError(value["error"])
        kinds = {kind.name: kind for kind in self.federation.method.kinds}
        return Outcome(**{**value, "sends": sends_of(value["sends"], kinds)})

    def shape(self, node: str) -> Shape:
        if node not in self.shapes:
            self.shapes[node] = replace(self.federation.node(node).shape, setting=self.federation.method.setting)
        return self.shapes[node]

    def state(self, node: str) -> dict[str, Any]:
        if node in self.states:
            return dict(codec.unpack(self.states[node]))
        return self.federation.node(node).state()

    def restore(self, node: str, state: dict[str, Any]) -> None:
        self.states[node] = codec.pack(state)

    def digest(self, node: str) -> bytes:
        return model_digest(self.state(node))
