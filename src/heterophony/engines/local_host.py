"""Reactions in this process, with all pending work computed together."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from heterophony.base import codec
from heterophony.base.fault import in_one_line
from heterophony.compute import Executor, executor_of
from heterophony.compute.eager import Job
from heterophony.engines.coding import Coder
from heterophony.engines.door import Door
from heterophony.engines.host import Activation
from heterophony.engines.idle import Idle
from heterophony.engines.offload import Offload
from heterophony.engines.outward import Account, Outward
from heterophony.engines.question import Answer, Question
from heterophony.federation import Federation
from heterophony.kernel.fields import Copied, Refused, Shape
from heterophony.kernel.mailbox import Mail, messages, swapped
from heterophony.kernel.message import Body, Kind, Message, Send
from heterophony.kernel.node import Node
from heterophony.kernel.reaction import Clock
from heterophony.kernel.topology import Links
from heterophony.kernel.vault import Vault
from heterophony.kernel.work import Fit, Mark, Work


class ReactionError(RuntimeError):
    """A reaction raised: says where."""


@dataclass
class Frame:
    """A running reaction: where it stands and what it has produced so far."""

    node: Node
    mail: Mail  # as the reaction sees it: on the node's device
    links: Links
    clock: float
    located: _Located
    generator: Generator[Any, Any, Any] | None = None
    work: Work | None = None
    asked: int = 0
    sends: list[tuple[float, Send]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


class LocalHost:
    """Holds nodes as objects. Python code runs at once; work waits until `step` computes all that is pending."""

    others: frozenset[str] = frozenset()
    idle: Idle | None = None

    def __init__(
        self,
        federation: Federation,
        executor: Executor | None = None,
        choices: Path | None = None,
        account: Account | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.vault = vault
        self.federation, self.executor = federation, executor or executor_of(federation, choices)
        self.outward = Outward(federation, account) if federation.guarded else None
        self.coder = Coder(federation) if federation.compress else None
        self.door = Door(federation)
        self.mute = {r.name for r in federation.method.reactions if isinstance(r.trigger, Clock)}
        self.nodes: dict[str, Node] = {}
        self.offload = Offload(federation.compute.device, federation.compute.resident)
        self.shapes: dict[str, Shape] = {}

    def node(self, id: str) -> Node:
        """Return a node with its models on the device."""
        node = self._held(id)
        self.offload.wake(node)
        return node

    def _held(self, id: str) -> Node:
        """Return a node, wherever its models are."""
        if id not in self.nodes:
            self.nodes[id] = self.federation.node(id)
            if self.vault is not None:
                self.nodes[id].vault = self.vault
            self.offload.built(self.nodes[id])
            if self.idle is not None and id in self.idle:
                self.nodes[id].restore(self.idle.state(id))
        return self.nodes[id]

    def surplus(self) -> list[str]:
        return self.offload.surplus()

    def release(self, id: str) -> None:
        """Forget a node: it is another worker's from now on, or a row."""
        if (node := self.nodes.pop(id, None)) is not None:
            self.offload.gone(node)
        self.shapes.pop(id, None)

    def begin(self, activation: Activation) -> None:
        question = activation.question
        node, mail = self.node(question.node), question.mail
        _check_unchanged_on_its_way(mail)
        if node.device != "cpu":
            mail = swapped(mail, lambda m: _brought(m, self.door.kinds, node.device))
        links = self.door.links(question.node, question.round, question.outside)
        node.links, node.round, node.time = links, question.round, question.start
        node.groups, node.doubts, node.refusals = {}, [], []
        if self.coder is not None:
            mail = self.coder.begin(node, mail)
        if self.outward is not None:
            mail = self.outward.begin(node, mail)
        frame = activation.frame = Frame(node, mail, links, question.start, _Located(question, node))
        function = getattr(self.federation.method, question.reaction)
        given = () if mail is None else (mail,)
        with frame.located:
            result = function(node, *given)
        if inspect.isgenerator(result):
            frame.generator = result
            self._advance(activation, None)
        else:
            self._finish(activation, result)

    def step(self, activations: Sequence[Activation]) -> None:
        jobs = [self._job(activation) for activation in activations]
        answers = self.executor(jobs)
        try:
            for activation, job, answer in zip(activations, jobs, answers, strict=True):
                activation.frame.rows += job.rows
                self._advance(activation, answer)
        finally:
            if isinstance(answers, Generator):
                answers.close()  # whoever still works on one stops

    def _job(self, activation: Activation) -> Job:
        """Return the work that a reaction waits for, with all that an executor has to know of it."""
        frame: Frame = activation.frame
        question = activation.question
        assert frame.work is not None
        once = isinstance(frame.work, Fit | Mark) and frame.work.once
        return Job(
            frame.node,
            frame.work,
            tag=f"{question.number}.{frame.asked}",
            time=frame.clock,
            evaluate=self._evaluates(activation),
            wave=(question.wave, frame.asked),
            left=1 if once else question.rounds - frame.node.round,
        )

    def _evaluates(self, activation: Activation) -> bool:
        """Say whether to evaluate: every so many rounds, by the node's own count, and in the run's last one.

        A mark that does not come again is always evaluated. So is that of a participant who may miss rounds.
        """
        node, work = activation.frame.node, activation.frame.work
        if isinstance(work, Mark):
            follows = node.role != self.federation.method.roles[0]
            if work.once or (self.federation.partial and follows):
                return True
        done = node.round + 1
        question = activation.question
        return bool(done % self.federation.evaluate == 0 or done == question.rounds or question.last)

    def _advance(self, activation: Activation, answer: Any) -> None:
        """Run the reaction's code up to its next work, collecting early sends on the way."""
        frame: Frame = activation.frame
        assert frame.generator is not None
        ended = False
        while True:
            try:
                with frame.located:
                    asked = frame.generator.send(answer)
            except StopIteration as stop:
                asked, ended = stop.value, True
            if ended:  # not in there: what goes wrong now would be shown on top of all that the reaction returned
                self._finish(activation, asked)
                return
            if isinstance(asked, Work):
                break
            self._send(activation, asked)
            activation.early, answer = list(frame.sends), None
        self._check_unchanged(activation)  # now: whoever got an early one may already be at work on it
        with frame.located:
            if isinstance(asked, Fit):
                asked = asked.at(frame.node)
                if self.outward is not None:
                    asked = self.outward.fit(frame.node, asked)
            samples = asked.samples(frame.node) * self.federation.slicing.cost(frame.node, asked)
        frame.work = asked
        frame.asked += 1
        frame.clock += samples * self.federation.profile(activation.node).seconds_per_sample
        activation.due = frame.clock

    def _finish(self, activation: Activation, result: Any) -> None:
        frame: Frame = activation.frame
        self._send(activation, result)
        node = frame.node
        if self.outward is not None:
            frame.rows += self.outward.end(node, frame.clock)
        with frame.located:
            node.check()
        self._check_unchanged(activation)
        sends = tuple(send for _, send in frame.sends)
        times = (*(departure for departure, _ in frame.sends), frame.clock)
        number = activation.question.number
        groups, refused, doubts = dict(node.groups), tuple(node.refusals), tuple(node.doubts)
        activation.answer = Answer(number, node.round, sends, frame.rows, groups, times, refused, doubts)
        activation.frame = None
        self.offload.rest(node)

    def _check_unchanged(self, activation: Activation) -> None:
        """Raise if a reaction's code has changed what it got or what it has sent."""
        frame: Frame = activation.frame
        with frame.located:
            for message in messages(frame.mail):
                if not message.body.intact:
                    raise ValueError(
                        f"changed the message {message.kind!r} it got, which others read too: copy it first"
                    )
            for _, send in frame.sends:
                if not send.body.intact:
                    raise ValueError(
                        f"changed the message {send.kind.name!r} after it was made: send a copy, or change a copy"
                    )

    def _send(self, activation: Activation, result: Any) -> None:
        """Put messages in the answer. A message's round is its sender's at this moment, unless it says otherwise."""
        frame: Frame = activation.frame
        with frame.located:
            for send in [result] if isinstance(result, Send) else list(result or []):
                if not isinstance(send, Send):
                    raise TypeError(f"expected messages or work, got {send!r:.60}")
                if activation.question.reaction in self.mute:
                    raise ValueError(f"sends {send.kind.name!r}, but a reaction that a clock wakes may send nothing")
                round = frame.node.round if send.round is None else send.round
                links = self._links(activation, round)
                to = links.group(send.kind.to) if send.to is None else send.to
                stamped = Send(send.kind, to, round, send.body, send.withheld)
                self._check(stamped, links)
                if self.outward is not None:
                    stamped = self.outward.out(frame.node, stamped, frame.mail)
                if self.federation.attack is not None and send.kind in self.federation.method.told:
                    stamped = self.federation.attack.lied(frame.node, stamped, frame.mail)  # a liar keeps to nothing
                if self.coder is not None:
                    stamped = self.coder.out(frame.node, stamped, activation.question.number, len(frame.sends))
                frame.sends.append((frame.clock, self._hidden(frame.node, stamped)))

    def _hidden(self, node: Node, send: Send) -> Send:
        """Return what leaves in place of a message: itself, unless the method hides it from its receivers.

        Nobody can look at what is hidden. So what a door would refuse is found out here, where it is sent.
        """
        method, roles = self.federation.method, self.federation.topology.roles
        if send.kind not in method.masked or not any(method.hides(send.kind, roles[to]) for to in send.to or ()):
            return send
        if not send.withheld and (verdict := send.kind.verdict(send.body, self.federation.bound)):
            node.refusals.append(f"{send.kind.name!r} of round {send.round}, its own: {verdict}")
            send = send.kind.absent(send.to, round=send.round)
        return method.hide(node, send)

    def _links(self, activation: Activation, round: int) -> Links:
        """Return the node's links in a round: as when the reaction fired, whoever has joined since."""
        question = activation.question
        if not self.federation.topology.drawn:
            links: Links = activation.frame.links
            return links
        return self.door.links(question.node, round, question.outside)

    def _check(self, send: Send, links: Links) -> None:
        """Raise unless the method declares the kind, and it goes along its link."""
        kind, method = send.kind, self.federation.method
        if kind not in method.kinds and kind not in method.masked:
            raise ValueError(f"{type(method).__name__} does not declare the kind {kind.name!r}")
        try:
            self.door.check_receivers(kind, send.to or (), links)
        except Refused as error:  # of one's own: a mistake in the method
            raise ValueError(str(error)) from None

    def shape(self, node: str) -> Shape:
        if node not in self.shapes:
            self.shapes[node] = self.door.shape(self._held(node))
        return self.shapes[node]

    def state(self, node: str) -> dict[str, Any]:
        self.offload.settle()
        if node not in self.nodes and self.idle is not None and node in self.idle:
            return self.idle.state(node)
        return self._held(node).state()

    def restore(self, node: str, state: dict[str, Any]) -> None:
        restored = self.node(node)
        restored.restore(state)
        self.offload.rest(restored)

    def digest(self, node: str) -> bytes:
        return model_digest(self.state(node))


def model_digest(state: dict[str, Any]) -> bytes:
    return hashlib.sha256(codec.pack(state["models"])).digest()


def _check_unchanged_on_its_way(mail: Mail) -> None:
    """Raise if a sender has kept what it sent and written into it since: it is told before its receiver is."""
    for message in messages(mail):
        if not message.body.intact:
            raise ReactionError(
                f"node {message.sender} has changed its message {message.kind!r} of round {message.round} to "
                f"{message.receiver} since it was sent: send a copy, or change a copy"
            )


def _brought(message: Message, kinds: Mapping[str, Kind], device: str) -> Body:
    """Return the body with its weights where the node's models are: from bytes, or a snapshot, they come on the CPU."""
    body = message.body
    weights = kinds[message.kind].weights
    if not any(_is_away(body[name]) for name in weights):
        return body
    return Body({**body, **{name: {n: t.to(device) for n, t in body[name].items()} for name in weights}})


def _is_away(weights: Mapping[str, Tensor]) -> bool:
    """Return whether weights, for a node that has its models on a GPU, are on the CPU."""
    tensors = [weights.whole] if isinstance(weights, Copied) and weights.untouched else weights.values()
    return any(tensor.device.type == "cpu" for tensor in tensors)


class _Located:
    """Says in which node, round and reaction an exception rose; for all that is done of one reaction."""

    def __init__(self, question: Question, node: Node) -> None:
        self.question, self.node, self.round = question, node, node.round

    def __enter__(self) -> None:
        self.round = self.node.round  # which the reaction may change

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        if isinstance(error, Exception) and not isinstance(error, (StopIteration, ReactionError)):
            where = f"node {self.node.id}, round {self.round}, reaction {self.question.reaction!r}"
            raise ReactionError(f"{where}: {in_one_line(error)}") from error
