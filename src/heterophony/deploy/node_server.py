"""One node's end of the wire: a question comes as bytes, is checked, applied once, and answered with bytes.

Nothing that the coordinator says is believed beyond what the plan allows: only reactions of the node's role, only
declared kinds along its own links, only what fits. Nothing leaves but what the organisation lets through (`egress`).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heterophony.base import codec
from heterophony.compute.numerics import arithmetic
from heterophony.deploy.budget import AtHome, Budget
from heterophony.deploy.home_vault import HomeVault
from heterophony.deploy.named_function import one_line
from heterophony.deploy.node_store import Memory, NodeStore
from heterophony.deploy.organisation import Egress
from heterophony.deploy.plan import Plan
from heterophony.engines.door import Door
from heterophony.engines.question import Answer, Question
from heterophony.engines.station import Station
from heterophony.federation import Federation
from heterophony.kernel.fields import Refused, Shape
from heterophony.kernel.mailbox import Inbox, Mail, messages
from heterophony.kernel.message import HEADER_LIMIT, Kind, Message, Send, whole
from heterophony.kernel.reaction import Clock, Each, Reaction, Round
from heterophony.kernel.vault import Vault

if TYPE_CHECKING:
    from heterophony.deploy.receipts import Signer

FORMAT = 2  # of questions and answers
ANEW = "a coordinator that begins anew needs a new federation id"
OLD = "was an old state put back, or lost?"
DOOR = "door"  # in a node's account: the privacy under which it answered last
log = logging.getLogger("heterophony.node")


def unpacked(data: bytes, limit: int) -> Any:
    """Return what these bytes say, or the refusal of bytes that nobody here reads."""
    try:
        return codec.unpack(data, limit, HEADER_LIMIT)
    except codec.Malformed as error:
        return Refused(f"malformed: {error}")


class NodeServer:
    """A node at home."""

    def __init__(
        self,
        plan: Plan,
        name: str,
        federation: Federation,
        store: NodeStore,
        egress: Egress | None = None,
        budget: Budget | None = None,
        vault: Vault | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.plan, self.name, self.federation, self.store = plan, name, federation, store
        self.egress = egress or Egress()
        self.role = federation.topology.roles[name]
        self.budget, self.signer = budget, signer
        self.vault = vault or HomeVault(store.folder / f"{plan.id}.secrets", plan.id)
        self.door = Door(federation)
        self.privacy = federation.private(name)

    def fewest(self, kind: Kind) -> int | None:
        """Return of how many members a sum is at least in which a kind leaves; None: its messages leave as they are."""
        method, topology = self.federation.method, self.federation.topology
        receivers = topology.static[self.name].group(kind.to)
        if not any(method.hides(kind, topology.roles[to]) for to in receivers):
            return None
        return max(int(method.option("secure.least")), self.vault.least)

    def answer(self, data: bytes) -> bytes:
        """Answer a question; what is refused is logged here, and changes nothing."""
        return self.answer_to(unpacked(data, self.plan.limit))

    def answer_to(self, value: Any) -> bytes:
        """Answer what was unpacked, or say why it could not be."""
        try:
            question = self._question(value)
            with self.store.locked():
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
        self.store.note(what, detail)

    # -- what comes in ---------------------------------------------------------------------------------------
    def _question(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Refused):
            raise value
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

    def _asked(self, value: dict[str, Any]) -> tuple[Question, Reaction]:
        """Return what is asked, and the reaction; refuse what an honest coordinator never asks."""
        # Who has joined is in the plan, and nobody is computed together with this node.
        question = Question.of({**value, "outside": [], "wave": 0})
        if question.rounds > self.plan.rounds:
            said = f"a question for {question.rounds} rounds"
            raise Refused(f"{said}, but federation.toml here says rounds = {self.plan.rounds}")
        name = question.reaction
        reaction = next((r for r in self.federation.method.reactions if r.name == name and self.role in r.roles), None)
        if reaction is None:
            raise Refused(f"no reaction of a {self.role} is called {name:.40}")
        self._check_form(question.mail, reaction)
        self._check_headers(question.mail, reaction)
        for message in messages(question.mail):
            self.door.check_age(message, question.round, question.rounds)
        return question, reaction

    def _check_form(self, mail: Mail, reaction: Reaction) -> None:
        """Check that the mail is what this reaction's trigger gives it: one message, an inbox, or nothing."""
        trigger = reaction.trigger
        wanted: type[Any] = Message if isinstance(trigger, Each) else Inbox
        if isinstance(trigger, Round | Clock) and not trigger.also:
            wanted = type(None)
        if type(mail) is not wanted:
            raise Refused(f"mail for {reaction.name!r} in a form that it never has")

    def _check_headers(self, mail: Mail, reaction: Reaction) -> None:
        """Check all headers. An honest coordinator's are always right: a wrong one condemns the whole question."""
        trigger = reaction.trigger
        main = set() if isinstance(trigger, Round | Clock) else {trigger.kind.name}
        also = {kind.name for kind in trigger.also}
        for message, swept in _each(mail):
            self.door.check_header(message, self.name, also if swept else main, reaction.name)

    def _fitting(self, mail: Mail, shape: Shape) -> tuple[Mail, list[str]]:
        """Return the mail that fits, and why the rest does not: its sender is then absent, whoever that is."""
        complaints = []

        def fits(message: Message) -> bool:
            try:
                self.door.check_body(message, shape)
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
    def _react(self, value: dict[str, Any]) -> dict[str, Any]:
        question, reaction = self._asked(value)
        asked = _hash_of(value)
        memory = self.store.load()
        if question.number == memory.applied and memory.answer is not None:
            if asked != memory.asked:
                raise Refused(f"activation {question.number} was another one when it was done: {ANEW}")
            return self._again(memory)
        self._check_turn(question, memory)
        answer, state, rows = self._reacted(question, reaction, memory.state)
        if self.privacy is not None:
            state.setdefault("account", {})[DOOR] = repr(self.privacy)
        if self.budget is not None:
            self._say_spent(answer)
        let_out, ledger = self._let_out(answer)
        receipts = self._receipts(let_out)
        kept = Memory(question.number, asked, {**let_out, **receipts}, state, memory.lengths)
        self.store.save(kept, ledger=ledger, metrics=rows, receipts=_rows_of(receipts))
        return {**let_out, **receipts}

    def _receipts(self, let_out: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return a signed line for each message of an answer, where this node signs."""
        if self.signer is None:
            return {}
        answer = Answer.of(let_out["outcome"], self.door.kinds)
        known = self.store.rows("receipts")
        last = known[-1] if known else None
        return {"receipts": self.signer.sign(self.plan, self.name, answer.number, answer.sends, last)}

    def _check_turn(self, question: Question, memory: Memory) -> None:
        """Check that this is the next question, of the node's own round, and that the organisation allows one more."""
        number, applied = question.number, memory.applied
        if number <= applied:
            raise Refused(f"activation {number} is past, {applied} have been done: {ANEW}")
        if number > applied + 1:  # nobody gives up a question, so that none is ever left out
            raise Refused(f"activation {number}, but only {applied} have been done here: {OLD}")
        now = 0 if memory.answer is None else memory.answer["outcome"]["round"]
        if question.round != now:  # a node's round is the one that it has told itself
            raise Refused(f"a question of round {question.round}, but this node is in round {now}")
        most = self.egress.reactions
        if most is not None and number > most:
            raise Refused(f"reaction {number}, but organisation.toml here says reactions = {most}")

    def _reacted(
        self, question: Question, reaction: Reaction, state: Mapping[str, Any] | None
    ) -> tuple[Answer, dict[str, Any], list[dict[str, Any]]]:
        """Run the reaction on what fits of the mail. Return the answer, the new state, and the own figures."""
        with arithmetic(self.federation):
            station = Station(self.federation, AtHome(self.budget), self.vault)
            station.restore(self.name, state)
            mail, complaints = self._fitting(question.mail, station.shape(self.name))
            for complaint in complaints:
                self._note("refused", complaint)
            if mail is None and isinstance(reaction.trigger, Each):  # as if it had never come
                answer = Answer(question.number, question.round, (), [], {})
            else:
                answer = station.react(replace(question, mail=mail))
            for refusal in answer.refused:
                self._note("refused", refusal)
            refused = (*complaints, *(one_line(text, 300) for text in answer.refused))
            return replace(answer, refused=refused), station.state(self.name), answer.rows

    def _let_out(self, answer: Answer) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the answer as the egress policy allows it, and the rows for the node's own ledger.

        It tells no times: how long work takes in virtual seconds follows from the number of private rows.
        """
        ledger = []
        for index, send in enumerate(answer.sends):
            message = Message(send.kind.name, self.name, "", send.round or 0, (answer.number, index), send.body)
            row = {"round": send.round, "kind": send.kind.name, "from": self.name}
            sizes = {"payload": 0 if send.withheld else send.kind.payload(send.body), "wire": message.wire}
            status = "withheld" if self._stays(send) else "sent"
            ledger += [{**row, "to": to, "status": status, **sizes} for to in send.to or ()]
        sends = tuple(replace(send, withheld=self._stays(send)) for send in answer.sends)
        told = replace(answer, sends=sends, rows=self._told(answer.rows), times=None)
        return {"outcome": told.plain()}, ledger

    def _again(self, memory: Memory) -> dict[str, Any]:
        """Return an answer that was kept, as the policy of today allows it: that may have become stricter since.

        What was noised in another way, or not at all, stays: the owner's block of today did not allow it.
        """
        assert memory.answer is not None
        kept, state = memory.answer, memory.state
        if "receipts" not in kept and (receipts := self._receipts(kept)):  # it was given before nodes signed
            kept |= receipts
            self.store.save(memory, receipts=_rows_of(receipts))
        receipts = {"receipts": kept["receipts"]} if "receipts" in kept else {}
        answer = Answer.of(kept["outcome"], self.door.kinds)
        other = self.privacy is not None and (state or {}).get("account", {}).get(DOOR) != repr(self.privacy)
        sends = []
        for send in answer.sends:
            withheld = self._stays(send) or (other and bool(send.kind.fields) and self._protects(send))
            sends.append(replace(send, withheld=withheld))
            if not withheld:
                size, to = send.kind.payload(send.body), ", ".join(send.to or ())
                self._note("again", f"{send.kind.name!r} of round {send.round} to {to} left once more, {size} bytes")
        return {"outcome": replace(answer, sends=tuple(sends), rows=self._told(answer.rows)).plain(), **receipts}

    def _stays(self, send: Send) -> bool:
        """Return whether a message is withheld: it would overdraw the privacy budget, or its kind may not leave."""
        return send.withheld or (self.egress.kinds is not None and send.kind.name not in self.egress.kinds)

    def _protects(self, send: Send) -> bool:
        return self.privacy is not None and self.privacy.protects(send.kind.name)

    def _say_spent(self, answer: Answer) -> None:
        """Note once that the privacy budget is spent."""
        known = any(row["incident"] == "budget" for row in self.store.rows("incidents"))
        if not known and any(send.withheld for send in answer.sends):
            self._note("budget", "the privacy budget is spent: what would overdraw it is withheld from now on")

    def _told(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the figures that the coordinator hears of."""
        return [row for row in rows if (row["split"] or "note") in self.egress.metrics]

    def _digest(self) -> dict[str, Any]:
        if not self.egress.digest:
            return {"digest": None}
        station = Station(self.federation)
        station.restore(self.name, self.store.load().state)
        return {"digest": station.digest(self.name).hex()}


class Household:
    """The nodes that one organisation holds: each question goes to the one that it names."""

    def __init__(self, nodes: Mapping[str, NodeServer]) -> None:
        self.nodes = dict(nodes)
        self.first = next(iter(self.nodes.values()))  # refuses, and notes, what is for none of them
        self.limit = self.first.plan.limit

    def answer(self, data: bytes) -> bytes:
        """Answer a question as the node does that it is for."""
        value = unpacked(data, self.limit)
        named = value.get("node") if isinstance(value, dict) else None
        here = self.nodes.get(named, self.first) if isinstance(named, str) else self.first
        return here.answer_to(value)


def _rows_of(receipts: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in receipts.get("receipts", ())]


def _hash_of(value: dict[str, Any]) -> str:
    """Return a hash of all in a question that a repetition of it has, too: it may come in a longer run, and later."""
    same = codec.pack([value[key] for key in ("number", "reaction", "round", "mail")])
    return hashlib.sha256(same).hexdigest()


def _each(mail: Mail) -> Iterator[tuple[Message, bool]]:
    """Yield every message in the mail, and whether it was only swept along."""
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
