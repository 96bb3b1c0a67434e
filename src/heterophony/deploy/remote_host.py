"""The coordinator's host: its own nodes react in this process, the organisations' on their machines.

What a participant is asked and what it answers are bytes; a courier carries them (`flower.py`; in tests a direct one).
A question is asked again until it is answered, which is harmless because a node applies each one once. Time is real: a
reaction ends when its answer arrives, so that deadlines of windows are real ones, and whoever misses one is absent.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from heterophony.base import codec
from heterophony.deploy.named_function import one_line
from heterophony.deploy.node_server import FORMAT
from heterophony.deploy.plan import Plan
from heterophony.engines.door import Door
from heterophony.engines.host import Activation
from heterophony.engines.local_host import LocalHost
from heterophony.engines.question import Answer, Question
from heterophony.federation import Federation
from heterophony.kernel.fields import Refused, Shape
from heterophony.kernel.mailbox import messages
from heterophony.kernel.message import HEADER_LIMIT, INVERSE, LINKS, Message, Send, whole
from heterophony.kernel.reaction import Every
from heterophony.kernel.topology import Links
from heterophony.tables.ledger import described, sender_in

if TYPE_CHECKING:
    from heterophony.deploy.receipts import Receipts, Signed

WATCH = 2.0  # seconds between looks at who is connected
ROWS = 10_000  # of figures in one answer
SENDS = 16  # messages in one answer, for each node of the federation
LEAP = 1000  # rounds of its own that a node may go through in one reaction
NAMES = ("product", "set", "split", "quantity")  # of a figure
LARGEST = 1e100  # of a figure: sums and squares of some are numbers still
PAUSE = 10.0  # seconds after which a node that could not react is asked again, at the earliest
log = logging.getLogger("heterophony.coordinator")


class Courier(Protocol):
    """Carries bytes to participants and back."""

    def present(self) -> Collection[str]:
        """Return the participants that can be asked now."""

    def send(self, questions: dict[str, bytes]) -> dict[str, str]:
        """Send to each its question; gives a ticket for each that is on its way."""

    def collect(self, tickets: Collection[str]) -> dict[str, bytes | None]:
        """Return the answers that have come to these tickets; None where it is certain that none will."""


@dataclass
class Asked:
    """A question that is open."""

    since: float
    tickets: set[str] = field(default_factory=set)
    last: float = -math.inf  # when it was last sent
    failures: tuple[float, float] | None = None  # when the first and the latest answer came that was of no use


class RemoteHost:
    """Holds the coordinator's nodes; knows the participants' by name only."""

    def __init__(
        self,
        plan: Plan,
        federation: Federation,
        courier: Courier,
        *,
        receipts: Receipts | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.plan, self.federation, self.courier, self.clock, self.sleep = plan, federation, courier, clock, sleep
        self.receipts = receipts  # where none are kept, none are asked for
        self.local = LocalHost(federation)
        self.door = Door(federation)
        self.remote = self.others = frozenset(plan.remote)
        self.origin = clock()
        self.asked: dict[str, Asked] = {}  # by node: a node is busy until it has answered
        self.trouble: dict[str, str] = {}  # what the last answer of a node that could not react was
        self.digests: dict[str, bytes] | None = None  # None: not asked for; empty: nobody told
        self.watch: Callable[[], None] = lambda: None  # called now and then
        self.watched = -math.inf
        self.seen: dict[str, float] = {}  # when a node was last connected

    def now(self) -> float:
        """Return the seconds of this run: real ones, which go on from the snapshot after a restart."""
        return self.clock() - self.origin

    # -- the seam --------------------------------------------------------------------------------------------
    def begin(self, activation: Activation) -> None:
        self.origin = min(self.origin, self.clock() - activation.question.start)
        self.digests = None
        if activation.node in self.remote:
            activation.away, activation.due = True, activation.question.start
            self.asked[activation.node] = Asked(self.clock())
        else:
            self.local.begin(activation)
            self._stamp(activation)

    def step(self, activations: Sequence[Activation]) -> None:
        here = [a for a in activations if not a.away]
        if here:  # these first: what is asked of others must stand in a snapshot, which waits for them
            self.local.step(here)
            for activation in here:
                self._stamp(activation)
            return
        if self.clock() - self.watched >= WATCH:
            self.watched = self.clock()
            self.seen |= dict.fromkeys(self.courier.present(), self.watched)
            self.watch()
        by_node = {a.node: a for a in activations}
        self._ask(by_node)
        if not self._collect(by_node):
            self.sleep(self.plan.pace.poll)
        for activation in activations:
            if activation.answer is None:
                activation.due = self.now()
                activation.refused = self._refused(activation.node)
                activation.lost = activation.refused or self._away(activation.node)

    def _away(self, node: str) -> bool:
        """Say whether a node has not been seen for too long. One that is connected may take as long as it likes."""
        return self.clock() - max(self.asked[node].since, self.seen.get(node, -math.inf)) > self.plan.pace.patience

    def _refused(self, node: str) -> bool:
        """Say whether a node has only refused and failed for too long."""
        first, latest = self.asked[node].failures or (0.0, 0.0)
        return latest - first > self.plan.pace.patience

    def _stamp(self, activation: Activation) -> None:
        """Let a reaction on this machine have ended now: it has taken as long as it has."""
        answer = activation.answer
        if answer is not None:
            activation.answer = answer.all_at(max(answer.end, self.now()))

    def shape(self, node: str) -> Shape | None:
        return None if node in self.remote else self.local.shape(node)

    def state(self, node: str) -> dict[str, Any]:
        """Return the state of a node of ours; a participant's never leaves it."""
        return {} if node in self.remote else self.local.state(node)

    def restore(self, node: str, state: dict[str, Any]) -> None:
        if node not in self.remote:
            self.local.restore(node, state)

    def digest(self, node: str) -> bytes:
        if node not in self.remote:
            return self.local.digest(node)
        if self.digests is None:
            self.digests = self._ask_digests()
        return self.digests.get(node, b"")

    # -- questions -------------------------------------------------------------------------------------------
    def _ask(self, activations: dict[str, Activation]) -> None:
        """Send what has not been sent, or has been out for too long, to whoever is there."""
        clock = self.clock()
        due = [node for node in activations if self._is_due(node, clock)]
        if not due:
            return
        present = self.courier.present()
        asked = {node: activations[node].question for node in due if node in present}
        questions = {node: self._packed(node, "react", **question.plain()) for node, question in asked.items()}
        for node, ticket in self.courier.send(questions).items() if questions else ():
            self.asked[node].tickets.add(ticket)
            self.asked[node].last = clock

    def _is_due(self, node: str, clock: float) -> bool:
        """Say whether it is time to ask a node, for the first time or again."""
        waited, again = clock - self.asked[node].last, self.plan.pace.again
        if self.asked[node].tickets and waited < again:
            return False
        return node not in self.trouble or waited >= min(again, PAUSE)

    def _packed(self, to: str, ask: str, **more: Any) -> bytes:
        about = {"format": FORMAT, "federation": self.plan.id, "plan": self.plan.digest, "node": to, "ask": ask}
        return codec.pack({**about, **more})

    def _collect(self, activations: dict[str, Activation]) -> bool:
        """Take in what has come; whether any of it was of use."""
        taken = 0
        holders = {t: node for node in activations for t in self.asked[node].tickets}
        answers = self.courier.collect(list(holders)) if holders else {}
        for ticket, data in answers.items():
            node = holders[ticket]
            if node not in self.asked:
                continue  # it has answered twice
            self.asked[node].tickets.discard(ticket)
            try:
                if data is None:
                    raise Refused("gave no answer; it will be asked again")
                answer, receipts = self._answer(activations[node].question, data)
                odd = self._unsound(answer)
            except Exception as error:  # whatever a hostile answer makes it raise
                text = str(error) if isinstance(error, Refused) else f"malformed: {type(error).__name__}"
                self._complain(node, text)
                continue
            if self.receipts is not None:  # not above: if the disk is full, it is not the node's fault
                self.receipts.keep(node, receipts)
            activations[node].answer = answer
            if odd:
                self._complain(node, odd)
            else:
                self.trouble.pop(node, None)
            del self.asked[node]
            taken += 1
        return taken > 0

    def _unsound(self, answer: Answer) -> str:
        """Return what is wrong with the first message that its receivers will refuse; empty if there is none."""
        for send in answer.sends:
            if not send.withheld and (verdict := send.kind.verdict(send.body, self.federation.bound)):
                return f"{send.kind.name!r} of round {send.round}: {verdict}"
        return ""

    def _complain(self, node: str, text: str) -> None:
        text, asked, clock = one_line(text), self.asked[node], self.clock()
        asked.failures = (asked.failures or (clock,))[0], clock
        if self.trouble.get(node) != text:
            log.warning("%s: %s", node, text)
        self.trouble[node] = text

    # -- answers ---------------------------------------------------------------------------------------------
    def _answer(self, question: Question, data: bytes) -> tuple[Answer, list[Signed]]:
        """Return what a participant's answer says, and its receipts; raise `Refused` unless it may say so."""
        value = self._unpacked(data)
        answer = self._outcome(question, value)
        if self.receipts is None:
            return answer, []
        return answer, self.receipts.checked(question.node, question.number, answer.sends, value.get("receipts"))

    def _outcome(self, question: Question, value: Any) -> Answer:
        """Return what was answered; raise `Refused` unless it is what the participant may answer."""
        match value:
            case {"outcome": {"number": question.number} as outcome}:
                pass
            case {"outcome": _}:
                raise Refused("an answer to another question")
            case {"refused": str(text)}:
                raise Refused(f"refused: {text:.300}")
            case {"failed": str(text)}:
                raise Refused(f"{text:.300}")
            case _:
                raise Refused("malformed: no answer")
        answer = Answer.of({**outcome, "times": None}, self.door.kinds)
        received = messages(question.mail)
        if len(outcome["refused"]) > len(received):  # it refuses mail, each at most once
            raise Refused(f"{len(outcome['refused'])} refusals of {len(received)} messages")
        latest = self._latest(question, answer.round)
        if len(answer.sends) > (most := SENDS * (1 + len(self.federation.topology.roles))):
            raise Refused(f"{len(answer.sends)} messages in one answer, the limit is {most}")
        for send in answer.sends:
            self._check_send(question, send, latest)
        links = self.door.links(question.node, answer.round)
        self._check_groups(question.node, answer.groups, links)
        rows = self._rows(question.node, answer.rows, latest)
        # What it says of mail that it has not got would only blame others.
        mail = {described(message.kind, message.round, message.sender) for message in received}
        refused = tuple(one_line(text, 300) for text in answer.refused if text.partition(": ")[0] in mail)
        senders = {message.sender for message in received}
        doubts = tuple(one_line(text, 300) for text in answer.doubts if sender_in(text) in senders)
        told = replace(answer, rows=rows, refused=refused, doubts=doubts[: len(received)])
        return told.all_at(max(question.start, self.now()))

    def _latest(self, question: Question, round: int) -> int:
        """Return the latest round of which the node can know, where its own may be this one."""
        known = max([question.round, *(message.round for message in messages(question.mail))])
        most = question.rounds if self.door.leads(question.node) else known + LEAP
        if round > most:
            raise Refused(f"round {round} after round {known}")
        return max(known, round)

    def _unpacked(self, data: bytes) -> Any:
        try:
            return codec.unpack(data, self.plan.limit, HEADER_LIMIT)
        except codec.Malformed as error:
            raise Refused(f"malformed: {error}") from None

    def _check_send(self, question: Question, send: Send, latest: int) -> None:
        """Check a message that a participant sends: where it goes, of which round it is, and that it can be kept."""
        name, node, to, round = send.kind.name, question.node, send.to or (), send.round or 0
        self.door.check_receivers(send.kind, to, self.door.links(node, round))
        if len(set(to)) < len(to):
            raise Refused(f"{name!r} names a receiver twice")
        # Mail for rounds to come lies unread until they do. (An inner node may answer its parent in the round of mail
        # that it had long before.)
        if round > latest and not self.door.links(node, question.round).children:
            raise Refused(f"{name!r} of round {round}, but the node has only come to round {latest}")
        if send.withheld:
            return
        for part in send.body.values():
            if isinstance(part, dict) and not all(map(_name, part)):  # names stand in the ledger where they do not fit
                raise Refused(f"{name!r}: a tensor's name is too long, or cannot be printed")
        # What does not hold what it should is refused at its receivers' doors, as in one process: asked again, a node
        # gives the same answer. But a ledger must be able to say its size, and a snapshot to hold it.
        _ = send.kind.payload(send.body), Message(name, node, "", round, (question.number, 0), send.body).wire

    def _rows(self, node: str, rows: list[Any], latest: int) -> list[dict[str, Any]]:
        if len(rows) > ROWS:
            raise Refused(f"{len(rows)} figures in one answer")
        made = [_row(node, row) for row in rows]
        if ahead := [row["round"] for row in made if row["round"] > latest]:
            raise Refused(f"a figure of round {ahead[0]}, but the node has only come to round {latest}")
        return [row for row in made if row["n"]]  # of no rows it says nothing, and nobody may divide by their number

    def _check_groups(self, node: str, groups: Mapping[str, Any], links: Links) -> None:
        """Check the groups that a node waits for from now on: it can only wait for those who may send to it."""
        topology, method = self.federation.topology, self.federation.method
        role = topology.roles[node]
        awaited = {
            r.trigger.of: r.trigger.kind for r in method.reactions if role in r.roles and type(r.trigger) is Every
        }
        for name, members in groups.items():
            if not isinstance(members, tuple) or not all(isinstance(m, str) and m in topology.roles for m in members):
                raise Refused("malformed: no group")
            kind = awaited.get(name)
            if name in LINKS or (kind and not all(links.has(INVERSE[kind.to], member) for member in members)):
                raise Refused(f"a group {name!r:.40} that a {role} cannot wait for")

    # -- digests ---------------------------------------------------------------------------------------------
    def _ask_digests(self, patience: float = 120.0) -> dict[str, bytes]:
        """Ask all participants for hashes of their models, at once; return those of all who tell them."""
        found: dict[str, bytes] = {}
        open_: dict[str, str] = {}  # ticket -> node
        end = self.clock() + patience
        while self.clock() < end:
            waiting = self.remote - found.keys() - set(open_.values())
            asked = {node: self._packed(node, "digest") for node in waiting & set(self.courier.present())}
            open_ |= {ticket: node for node, ticket in self.courier.send(asked).items()} if asked else {}
            for ticket, data in self.courier.collect(list(open_)).items():
                node = open_.pop(ticket)
                if data is not None:
                    found[node] = self._digest_of(data)
            if found.keys() == self.remote:
                break
            self.sleep(self.plan.pace.poll)
        return found

    def _digest_of(self, data: bytes) -> bytes:
        """Return the hash in an answer; nothing where a node does not tell, or makes no sense."""
        try:
            match self._unpacked(data):
                case {"digest": str(text)}:
                    return bytes.fromhex(text)
        except ValueError:
            pass
        return b""


def _number(value: Any, below: float) -> bool:
    """Say whether this is a number below a limit. It is compared as it is: it may be too large to become a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < below


def _name(value: Any) -> bool:
    """Say whether a text may stand in a table. What cannot be printed would do something to the reader's terminal."""
    return isinstance(value, str) and len(value) <= 200 and value.isprintable()


def _row(node: str, value: Any) -> dict[str, Any]:
    """Check a row of the table from outside; return it as one of its own node. It has nothing but what a row has."""
    if not isinstance(value, dict) or value.keys() != {*NAMES, "round", "n", "time", "node", "sum"}:
        raise Refused("malformed: no figure")
    if not all(isinstance(value[name], str) for name in NAMES) or not whole(value["round"]) or not whole(value["n"]):
        raise Refused("malformed: no figure")
    if any(not _name(value[name]) for name in NAMES):
        raise Refused("malformed: a figure's name is too long, or cannot be printed")
    if not _number(value["time"], 2**53) or not (value["sum"] is None or _number(value["sum"], LARGEST)):
        raise Refused("malformed: no figure")
    return {**value, "node": node}
