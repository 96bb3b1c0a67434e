"""One node's end of the wire: a question comes as bytes, is checked, applied once, and answered with bytes.

Nothing that the coordinator says is believed beyond what the plan allows: only reactions of the node's role, only
declared kinds along its own links, only what fits. Nothing leaves but what the organisation lets through (`egress`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from heterophony.base import codec
from heterophony.compute.numerics import arithmetic
from heterophony.deploy.named_function import one_line, whole
from heterophony.deploy.node_store import Memory, Vault
from heterophony.deploy.organisation import Egress
from heterophony.deploy.plan import Plan
from heterophony.engines.host import Activation, Outcome
from heterophony.engines.local_host import LocalHost
from heterophony.engines.wire import mail_of
from heterophony.federation import Federation
from heterophony.kernel.fields import Refused
from heterophony.kernel.mailbox import Inbox, messages
from heterophony.kernel.message import HEADER_LIMIT, INVERSE, Message
from heterophony.kernel.reaction import Each, Reaction, Round

FORMAT = 1
ANEW = "a coordinator that begins anew needs a new federation id"
OLD = "was an old state put back, or lost?"
log = logging.getLogger("heterophony.node")


class Site:
    """A participant at home."""

    def __init__(
        self, plan: Plan, name: str, federation: Federation, vault: Vault, egress: Egress | None = None
    ) -> None:
        self.plan, self.name, self.federation, self.vault = plan, name, federation, vault
        self.egress = egress or Egress()
        self.role = federation.topology.roles[name]
        self.kinds = {kind.name: kind for kind in federation.method.kinds}

    def answer(self, data: bytes) -> bytes:
        """Answer a question; what is refused is logged here, and changes nothing."""
        try:
            question = self._question(data)
            with self.vault.locked():
                if question["ask"] == "digest":
                    return codec.pack(self._digest())
                return codec.pack(self._react(question))
        except Refused as error:
            self._note("refused", str(error))
            return codec.pack({"refused": str(error)})
        except Exception as error:
            # What went wrong may tell of private data: the text stays here.
            log.debug("%s", self.name, exc_info=error)
            self._note("failed", f"{type(error).__name__}: {error}")
            return codec.pack({"failed": "it could not react; its own log says why"})

    def _note(self, what: str, detail: str) -> None:
        detail = one_line(detail)
        log.warning("%s: %s: %s", self.name, what, detail)
        self.vault.note(what, detail)

    # -- what comes in ---------------------------------------------------------------------------------------
    def _question(self, data: bytes) -> dict[str, Any]:
        try:
            value = codec.unpack(data, self.plan.limit, HEADER_LIMIT)
        except codec.Malformed as error:
            raise Refused(f"malformed: {error}") from None
        match value:
            case {"format": int(form), "federation": str(id), "plan": str(plan), "node": str(node), "ask": str(ask)}:
                pass
            case _:
                raise Refused("malformed: no question of ours")
        if not whole(form) or form != FORMAT:
            raise Refused(f"a question in format {form}, not {FORMAT}: install the same version everywhere")
        if (id, node) != (self.plan.id, self.name):
            raise Refused(f"a question to {node:.40} of federation {id:.40}")
        if plan != self.plan.digest:
            raise Refused("the coordinator's plan is not the one here: compare federation.toml")
        if ask not in ("react", "digest"):
            raise Refused(f"malformed: nobody can ask for {ask:.40}")
        return dict(value)

    def _activation(self, question: dict[str, Any]) -> tuple[Activation, Reaction]:
        match question:
            case {
                "number": int(number),
                "reaction": str(name),
                "round": int(round),
                "rounds": int(rounds),
                "start": int() | float() as start,
                "mail": mail,
            } if all(map(whole, (number, round, rounds))) and number >= 1:
                pass
            case _:
                raise Refused("malformed: no activation")
        if isinstance(start, bool) or not 0 <= start < 2**53:  # as it is: it may be too large to become a float
            raise Refused(f"malformed: the run cannot be {start!r:.40} seconds old")
        if not isinstance(last := question.get("last", False), bool):
            raise Refused(f"malformed: whether it is the last round is {last!r:.40}")
        if rounds > self.plan.rounds:
            raise Refused(f"a question for {rounds} rounds, but federation.toml here says rounds = {self.plan.rounds}")
        reaction = next((r for r in self.federation.method.reactions if r.name == name and self.role in r.roles), None)
        if reaction is None:
            raise Refused(f"no reaction of a {self.role} is called {name:.40}")
        links = self.federation.topology.links(self.name, round, self.federation.seed)
        asked = Activation(
            self.name, number, name, self._mail(mail, reaction), links, round, rounds, frozenset(), float(start),
            last=last,
        )  # fmt: skip
        for message in messages(asked.mail):
            self._check_age(message, asked)
        return asked, reaction

    def _check_age(self, message: Message, asked: Activation) -> None:
        """A message is as old as the rounds say, and whoever leads is in none that is not of the run."""
        age = max(0, asked.round - message.round)
        if type(message.staleness) is not int or message.staleness != age:
            raise Refused(
                f"{message.kind!r} of round {message.round} is {message.staleness!r:.40} rounds old, not {age}"
            )
        leads = self.federation.topology.roles[message.sender] == self.federation.method.roles[0]
        if leads and message.round > asked.rounds:
            raise Refused(f"{message.kind!r} of round {message.round}, but the run has {asked.rounds}")

    def _mail(self, value: Any, reaction: Reaction) -> Message | Inbox | None:
        try:
            mail: Message | Inbox | None = mail_of(value)
        except Refused:
            raise
        except Exception:  # whatever a hostile value makes it raise
            raise Refused("malformed: no mail") from None
        trigger = reaction.trigger
        wanted: type[Any] = Message if isinstance(trigger, Each) else Inbox
        if isinstance(trigger, Round) and not trigger.also:
            wanted = type(None)
        if type(mail) is not wanted:
            raise Refused(f"mail for {reaction.name!r} in a form that it never has")
        main = set() if isinstance(trigger, Round) else {trigger.kind.name}
        also = {kind.name for kind in trigger.also}
        for message, swept in _each(mail):
            self._check_header(message, also if swept else main, reaction)
        return mail

    def _check_header(self, message: Message, allowed: set[str], reaction: Reaction) -> None:
        """An honest coordinator's headers are always right, so that a wrong one condemns the whole question."""
        if message.kind not in self.kinds:
            raise Refused(f"the kind {message.kind!r:.40} is not declared")
        kind = self.kinds[message.kind]
        if message.kind not in allowed:
            raise Refused(f"{reaction.name!r} takes no {message.kind!r}")
        links = self.federation.topology.links(self.name, message.round, self.federation.seed)
        if message.receiver != self.name or not links.has(INVERSE[kind.to], message.sender):
            raise Refused(
                f"{message.kind!r} from {message.sender!r:.40} to {message.receiver!r:.40} is on no link here"
            )
        if not all(map(whole, message.id)):
            raise Refused(f"malformed: {message.kind!r} has an id that is none")

    def _door(self, mail: Message | Inbox | None, host: LocalHost) -> tuple[Message | Inbox | None, list[str]]:
        """The mail that fits, and why the rest does not: its sender is then absent, whoever that is."""
        shape, complaints = host.shape(self.name), []

        def fits(message: Message) -> bool:
            try:
                self.kinds[message.kind].check(message.body, shape)
            except Refused as error:
                text = f"{message.kind!r} of round {message.round} from {message.sender}: {error}"
                complaints.append(one_line(text, 300))  # it goes into the answer, whatever the names in that mail
                return False
            return True

        if mail is None:
            return None, complaints
        also = tuple(m for m in mail.also if fits(m))
        if isinstance(mail, Message):
            return (replace(mail, also=also) if fits(mail) else None), complaints
        kept = Inbox(m for m in mail if fits(m))
        kept.also = also
        return kept, complaints

    # -- what is done ----------------------------------------------------------------------------------------
    def _react(self, question: dict[str, Any]) -> dict[str, Any]:
        activation, reaction = self._activation(question)
        same = codec.pack([question[key] for key in ("number", "reaction", "round", "mail")])
        asked = hashlib.sha256(same).hexdigest()
        memory = self.vault.load()
        if activation.number == memory.applied and memory.answer is not None:
            if asked != memory.asked:
                raise Refused(f"activation {activation.number} was another one when it was done: {ANEW}")
            return self._again(memory.answer)
        if activation.number <= memory.applied:
            raise Refused(f"activation {activation.number} is past, {memory.applied} have been done: {ANEW}")
        if activation.number > memory.applied + 1:  # nobody gives up a question, so that none is ever left out
            raise Refused(f"activation {activation.number}, but only {memory.applied} have been done here: {OLD}")
        now = 0 if memory.answer is None else memory.answer["outcome"]["round"]
        if activation.round != now:  # a node's round is the one that it has told itself
            raise Refused(f"a question of round {activation.round}, but this node is in round {now}")
        most = self.egress.reactions
        if most is not None and activation.number > most:
            raise Refused(f"reaction {activation.number}, but organisation.toml here says reactions = {most}")
        federation = self.federation
        with arithmetic(federation):
            host = LocalHost(federation)
            if memory.state is not None:
                host.restore(self.name, memory.state)
            activation.mail, complaints = self._door(activation.mail, host)
            for complaint in complaints:
                self._note("refused", complaint)
            if activation.mail is None and isinstance(reaction.trigger, Each):
                outcome = Outcome(activation.start, [], [], activation.round, {})  # as if it had never come
            else:
                outcome = _done(activation, host)
            state = host.state(self.name)
        answer, ledger, rows = self._let_out(activation, outcome, complaints)
        self.vault.save(Memory(activation.number, asked, answer, state, memory.lengths), ledger=ledger, metrics=rows)
        return answer

    def _let_out(
        self, activation: Activation, outcome: Outcome, complaints: list[str]
    ) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
        """The answer as the egress policy allows it, and the rows for the node's own tables."""
        sends, ledger = [], []
        for index, (_, send) in enumerate(outcome.sends):
            allowed = self._may_leave(send.kind.name)
            sends.append((send.kind.name, send.to, send.round, dict(send.body) if allowed else None))
            message = Message(send.kind.name, self.name, "", send.round or 0, (activation.number, index), send.body)
            row = {"round": send.round, "kind": send.kind.name, "from": self.name}
            sizes = {"payload": send.kind.payload(send.body), "wire": message.wire}
            status = "sent" if allowed else "withheld"
            ledger += [{**row, "to": to, "status": status, **sizes} for to in send.to or ()]
        told = self._told(outcome.rows)
        answer = {
            "outcome": {
                "number": activation.number,
                "sends": sends,
                "rows": told,
                "round": outcome.round,
                "groups": outcome.groups,
                "refused": complaints,
            }
        }
        return answer, ledger, outcome.rows

    def _again(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer that was kept, as the policy of today allows it: that may have become stricter since."""
        outcome, sends = answer["outcome"], []
        for kind, to, round, body in outcome["sends"]:
            allowed = body is not None and self._may_leave(kind)
            sends.append((kind, to, round, body if allowed else None))
            if allowed:
                size = self.kinds[kind].payload(body)
                self._note("again", f"{kind!r} of round {round} to {', '.join(to)} left once more, {size} bytes")
        return {"outcome": {**outcome, "sends": sends, "rows": self._told(outcome["rows"])}}

    def _may_leave(self, kind: str) -> bool:
        return self.egress.kinds is None or kind in self.egress.kinds

    def _told(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The figures that the coordinator hears of."""
        return [row for row in rows if (row["split"] or "note") in self.egress.metrics]

    def _digest(self) -> dict[str, Any]:
        if not self.egress.digest:
            return {"digest": None}
        memory, host = self.vault.load(), LocalHost(self.federation)
        if memory.state is not None:
            host.restore(self.name, memory.state)
        return {"digest": host.digest(self.name).hex()}


def _done(activation: Activation, host: LocalHost) -> Outcome:
    host.begin(activation)
    while activation.outcome is None:
        host.step([activation])
    return activation.outcome


def _each(mail: Message | Inbox | None) -> Iterator[tuple[Message, bool]]:
    """Every message in the mail, and whether it was only swept along."""
    if mail is None:
        return
    for message in [mail] if isinstance(mail, Message) else mail:
        yield message, False
        if not isinstance(mail, Message) and message.also:
            raise Refused("malformed: no mail")
    for message in mail.also:
        yield message, True
        if message.also:
            raise Refused("malformed: no mail")
