"""The clock: discrete events in virtual time. Owns headers, triggers and timers; a host executes the reactions.

Virtual durations follow from the declared work and the device profiles alone. So it does not matter when, where, or
together with what a reaction is really executed: every host gives the same events in the same order.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heterophony.base import codec
from heterophony.base.store import Store
from heterophony.compute.numerics import arithmetic
from heterophony.engines.door import Door
from heterophony.engines.event import Absence, Arrival, Deadline, Event, Free, Join, Queue, Tick, Wake
from heterophony.engines.host import Activation, Host, LetsGo
from heterophony.engines.idle import Idle
from heterophony.engines.network import Network
from heterophony.engines.question import Answer, Question
from heterophony.engines.refusals import OnlyRefused, RefusedKinds, Unheard
from heterophony.engines.silence import silent
from heterophony.federation import Federation
from heterophony.federation.checks import check_alike
from heterophony.kernel.fields import Refused
from heterophony.kernel.mailbox import Inbox, Mailbox
from heterophony.kernel.message import LINKS, Kind, Message, Send, ask_together
from heterophony.kernel.reaction import Clock, Every, Round
from heterophony.kernel.topology import Links
from heterophony.tables.ledger import Ledger, described, sender_in
from heterophony.tables.result import Result
from heterophony.tables.table import Table

if TYPE_CHECKING:
    from heterophony.engines.record import Record

log = logging.getLogger("heterophony.engine")


class Stalled(RuntimeError):
    """The federation cannot finish; the text names who waits for whom."""


class PutOut(Refused):
    """A message of a participant that was put out: it says nothing of the kind of message."""


class Engine:
    """Runs a federation to its number of rounds. `encode` sends every message through its bytes."""

    def __init__(
        self,
        federation: Federation,
        host: Host,
        *,
        encode: bool = False,
        network: Callable[[Federation], Network] = Network,
        record: Record | None = None,
        progress: Callable[[Engine], None] | None = None,
    ) -> None:
        self.federation, self.method, self.host = federation, federation.method, host
        self.encode, self.network, self.record, self.progress = encode, network(federation), record, progress
        self.door = Door(federation)
        self.kinds = self.door.kinds
        self.leads = [n for n, role in federation.topology.roles.items() if role == self.method.roles[0]]
        self.rounds, self.clock = 0, 0.0
        self.wound = {r.name for r in self.method.reactions if isinstance(r.trigger, Clock)}  # that clocks wake
        self.started = False
        self.stop = False  # set from outside (a signal): save after the present events, then stop
        self.queue = Queue()
        self.waves = 0
        self.boxes: dict[str, Mailbox] = {}  # of nodes that have taken part, but for those that are rows of `idle`
        self.idle = Idle(Store() if record is None else record.nodes)
        self.letting = host if isinstance(host, LetsGo) else None
        if self.letting is not None:
            self.letting.idle = self.idle
        self.pending: list[Activation] = []
        self.lost: set[str] = set()  # nodes on other machines that give no sign
        self.outside = set(federation.joins)  # nodes that have not joined yet
        self.cache: dict[str, Links] = {}
        self.dirty: set[str] = set()
        self.out: dict[str, int] = {}  # nodes that were put out, and in which round
        self.blame: Counter[str] = Counter()  # of a node, how often what it sent was refused, or far from the rest
        self.table, self.ledger, self.refusals = Table(task=federation.task), Ledger(), RefusedKinds()

    # -- the run ---------------------------------------------------------------------------------------------
    def run(self, rounds: int | None = None) -> Result:
        """Run until every node of the leading role has done its rounds and all mail has played out.

        Called again with more rounds, it goes on from there.
        """
        began = time.perf_counter()
        with arithmetic(self.federation):
            if self.record is not None and self.record.exists and not self.started:
                self.record.load(self)
                self.started = True
                self.record.refuse_fewer(rounds or self.rounds, self.rounds)
            more = (rounds or 0) > self.rounds
            self.rounds = max(self.rounds, rounds or 0)
            if self.started:
                if more:
                    self._save()  # from now on the run is one of so many rounds, and not finished
                self._go_on()
            else:
                check_alike(self.federation)
                if self.record is not None:
                    self.record.begin()
                self._start()
                self._save()
            self._loop()
            self._check_heard(ended=True)
            self._check_finished()
            self._save()
        return self._result(time.perf_counter() - began if self.record is None else self.record.seconds)

    def _go_on(self) -> None:
        """Go on after a load, or with more rounds to do: whoever was held back may have something to do."""
        for activation in self.pending:  # asked of another machine, and not answered yet
            self.host.begin(activation)
            self._post_early(activation)
        for box in list(self.boxes.values()):
            if not box.busy:
                self.dirty.add(box.node)
                self._open(box, {})
                self._fire(box)

    def _start(self) -> None:
        self.started = True
        for node, when in self.federation.joins.items():
            self.queue.push(when, Join(node))
        for node, role in self.federation.topology.roles.items():
            if node in self.outside:
                continue
            if self._wakes_alone(role):
                self._enter(node)
            self._start_clocks(node)

    def _wakes_alone(self, role: str) -> bool:
        """Say whether nodes of a role have something to do, or to wait for, before any mail."""
        return any(
            isinstance(r.trigger, Round) or (isinstance(r.trigger, Every) and r.trigger.of in LINKS)
            for r in self.method.reactions
            if role in r.roles
        )

    def _enter(self, node: str) -> None:
        box = self.box(node)
        self._open(box, {})
        self._fire(box)

    def _loop(self) -> None:
        while not self._at_an_end():
            # Whatever could still arrive by the next moment must be known before the clock moves on.
            if self.pending and min(a.due for a in self.pending) <= self.queue.moment:
                if self.record is not None and any(a.away and not a.recorded for a in self.pending):
                    self._save()  # what is asked of another machine stands in a snapshot first: it is asked again
                self._step()
            elif not self._over() and self._nothing_can_come():
                return
            else:
                self._wave(self.queue.moment)
                self._after_wave()

    def _at_an_end(self) -> bool:
        """Say whether nothing happens any more, and nobody leads; do without those who say nothing before that."""
        while self._quiet():
            if self._over():
                return True
            if not self._do_without():
                return False
        return False

    def _after_wave(self) -> None:
        """Look whether the run makes sense, tell how far it is, and save it when it is time."""
        self._check_heard()
        self._let_go()
        self.network.forget(self.clock)
        if self.record is None:
            self.table.rows.spill()
            self.ledger.rows.spill()
        if self.progress is not None:
            self.progress(self)
        if self.record is not None and self.record.due():
            self._save()
        if self.stop:
            self._save()
            raise KeyboardInterrupt

    def _let_go(self) -> None:
        """Make rows of nodes for which the host has no room, where their mailbox has nothing to do."""
        if self.letting is None:
            return
        for node in self.letting.surplus():
            if node not in self.boxes or self._is_awake(node):
                continue
            if node in self.dirty or node not in self.idle:
                self.write_row(node)
            self.dirty.discard(node)
            self.letting.release(node)
            del self.boxes[node]

    def _is_awake(self, node: str) -> bool:
        """Say whether a node may have something to do without new mail, or leads."""
        box = self.boxes[node]
        return not box.rests or box.role == self.method.roles[0] or self._wakes_alone(box.role)

    def _quiet(self) -> bool:
        """Say whether nothing is under way but clocks, and reactions on machines that give no sign."""
        return self._only_clocks() and all(a.node in self.lost for a in self.pending)

    def _only_clocks(self) -> bool:
        """Say whether nothing is going to happen but that clocks strike."""
        return all(isinstance(event, Tick) for _, event in self.queue.heap)

    def _nothing_can_come(self) -> bool:
        """Say whether clocks strike on, but nothing else can happen: what they wake sends nothing."""
        if not self.wound:  # there are no clocks
            return not self.queue.heap and not self.pending
        others = [event for _, event in self.queue.heap if not isinstance(event, Tick)]
        ending = [event.node for event in others if isinstance(event, Free) and event.alone]
        running = [a.node for a in self.pending if a.question.reaction in self.wound]
        if len(ending) < len(others) or len(running) < len(self.pending):
            return False
        return not any(self._has_mail_to_act_on(node) for node in ending + running)

    def _has_mail_to_act_on(self, node: str) -> bool:
        ready = self.box(node).ready()
        return ready is not None and not isinstance(ready.reaction.trigger, Clock)

    def _do_without(self) -> bool:
        """Tell windows that nodes of other organisations are absent which say nothing; whether there were any."""
        if not self.host.others:
            return False
        boxes = [self.boxes[node] for node in sorted(self.boxes) if not self.finished(self.boxes[node])]
        found = silent(boxes, self.host.others, {a.node: a.refused for a in self.pending})
        moment = max([self.clock, *(a.due for a in self.pending)])
        for absence, why in found:
            what = described(absence.kind, absence.round, absence.sender)
            self.ledger.incident(moment, absence.receiver, "absent", f"{what}: {why}")
            self.queue.push(moment, absence)
        return bool(found)

    def _step(self, here: bool = False) -> None:
        """Let the host compute all that is pending (`here`: on this machine), together; commit what has ended."""
        waiting = [a for a in self.pending if a.answer is None and not (here and a.away)]
        if waiting:
            self.host.step(waiting)
            for activation in waiting:
                self._post_early(activation)
        done = [a for a in self.pending if a.answer is not None]
        self.pending = [a for a in self.pending if a.answer is None]
        self.lost = {a.node for a in self.pending if a.lost}
        for activation in done:
            assert activation.answer is not None
            self._commit(activation, activation.answer)

    def _wave(self, moment: float) -> None:
        """Apply all that happens at this moment; then let whoever is ready react."""
        self.waves += 1
        wave = self.queue.wave()
        if self.federation.compute.device != "cpu":
            mail = [event.message for event in wave if isinstance(event, Arrival)]
            ask_together((self.kinds[message.kind], message.body) for message in mail)
        touched = {self._happen(event, moment) for event in wave}
        self.dirty |= touched
        for node in sorted(touched):
            self._fire(self.box(node))

    def _happen(self, event: Event, moment: float) -> str:
        """Apply an event; returns the node it concerns."""
        if isinstance(event, Arrival):  # as most are
            self.clock = moment
            self._arrive(event.message)
            return event.message.receiver
        if isinstance(event, (Deadline, Tick)) and not self._means_something(event, moment):
            return event.node
        self.clock = moment
        match event:
            case Absence(kind, sender, receiver, round):
                self.box(receiver).absent(kind, sender, round)
                return receiver
            case Free(node):
                box = self.box(node)
                box.busy, box.round = False, event.round
                self.table.add(event.rows)
                self.ledger.add(event.ledger)
                self._open(box, event.groups)
            case Deadline(node):
                again = self.box(node).expire(event.reaction, moment)
                if again is not None:
                    self.queue.push(again, event)
            case Tick(node, reaction):
                self.box(node).strike(reaction)
            case Join(node):
                self._join(node)
            case Wake(node):
                pass
        return node

    def _means_something(self, timer: Deadline | Tick, moment: float) -> bool:
        """Say whether a timer has something to do; one that has not does not move the clock."""
        if isinstance(timer, Deadline):
            return self.box(timer.node).awaits(timer.reaction, moment)  # else its window has fired
        self._wind(timer, moment)
        return not self._over()

    def _join(self, node: str) -> None:
        """Let a node in that was outside."""
        self.outside.discard(node)
        self.cache.clear()
        self.ledger.incident(self.clock, node, "joined", "")
        box, peers = self.box(node), self.links(node, 0).peers
        # Among equals it begins with the next round: the present one has opened without it.
        box.round = max((self.box(peer).round + 1 for peer in peers), default=0)
        self._open(box, {})
        self._start_clocks(node)

    def _wind(self, tick: Tick, moment: float) -> None:
        """Let a clock strike once more, so many seconds from now."""
        every = self.method.clocks(*self.federation.topology.names(tick.node))[tick.reaction]
        self.queue.push(moment + every, tick)

    def _start_clocks(self, node: str) -> None:
        for reaction in self.method.clocks(*self.federation.topology.names(node)):
            self._wind(Tick(node, reaction), self.clock)

    # -- reactions -------------------------------------------------------------------------------------------
    def _fire(self, box: Mailbox) -> None:
        if box.busy or self.finished(box):
            return
        for message in box.late():
            self.ledger.incident(self.clock, box.node, "late", _describe(message))
        ready = box.ready()
        if ready is None:
            return
        back = self.federation.profile(box.node).next_available(self.clock)
        if back > self.clock:  # nothing fires on a node that is away
            if math.isfinite(back):
                self.queue.push(back, Wake(box.node))
            return
        if isinstance(ready.reaction.trigger, (Round, Clock)) and self._over():
            return
        for what, detail in ready.incidents:
            self.ledger.incident(self.clock, box.node, what, f"{detail}, round {box.round}")
        box.fire(ready)
        question = Question(
            node=box.node,
            number=box.activations,
            reaction=ready.reaction.name,
            mail=ready.mail,
            round=box.round,
            rounds=self.rounds,
            start=self.clock,
            last=self._last(box, ready.mail),
            outside=frozenset(self.outside),
            wave=self.waves,
        )
        activation = Activation(question, due=self.clock)
        self.host.begin(activation)
        self._post_early(activation)
        self.pending.append(activation)

    def _post_early(self, activation: Activation) -> None:
        """Send what left a reaction that goes on: at once, so that whoever waits for it computes beside it.

        No snapshot can tell: it lets every reaction end first.
        """
        known = len(activation.posted)
        for index, (departure, send) in enumerate(activation.early[known:], known):
            id = (activation.question.number, index)
            activation.posted.append(self._post(activation.node, id, departure, send))

    def _commit(self, activation: Activation, answer: Answer) -> None:
        """Make a reaction's state, consumed mail and outgoing mail part of the run at once."""
        node = activation.node
        rows, known = [row for posted in activation.posted for row in posted], len(activation.posted)
        for text in answer.refused:
            self.ledger.incident(answer.end, node, "refused", text)
        for text in answer.doubts:
            self.ledger.incident(answer.end, node, "doubted", text)
            if node not in self.host.others:  # an organisation's word puts nobody out
                self._blame(sender_in(text), answer.end, node)
        leaving = list(enumerate(zip(answer.departures, answer.sends, strict=True)))
        for index, (departure, send) in leaving[known:]:
            rows += self._post(node, (answer.number, index), departure, send)
        for _, (_, send) in leaving:
            self._check_made(node, answer.end, send)
        alone = activation.question.reaction in self.wound
        self.queue.push(answer.end, Free(node, answer.round, answer.groups, answer.rows, rows, alone))
        self.dirty.add(node)

    def _open(self, box: Mailbox, groups: dict[str, tuple[str, ...]]) -> None:
        if not box.windowed or self.finished(box):
            return
        links = self.links(box.node, box.round)
        opened = box.open(links, groups, self.clock, lambda node: self._dropped(node, box.round))
        for reaction, window in opened:
            if window.deadline is not None:
                self.queue.push(window.deadline, Deadline(box.node, reaction, window.round))

    def finished(self, box: Mailbox) -> bool:
        """Say whether a node leads and has done its rounds: then it takes no more part."""
        return box.role == self.method.roles[0] and box.round >= self.rounds

    def _last(self, box: Mailbox, mail: Message | Inbox | None) -> bool:
        """Say whether all who lead a follower are in their last round, whichever it is by the follower's own count.

        What a leader sent in a round before may still be on its way then: that is not the last to come.
        """
        if self.federation.evaluate == 1 or box.role == self.method.roles[0]:
            return False
        letters = [mail] if isinstance(mail, Message) else mail or ()
        if any(letter.sender in self.leads and letter.round < self.rounds - 1 for letter in letters):
            return False
        return all(node in self.boxes and self.boxes[node].round >= self.rounds - 1 for node in self.leads)

    def _over(self) -> bool:
        """Say whether nobody leads any more: all who do have done their rounds, or are gone for good."""
        return not any(self._leads_on(node) for node in self.leads)

    def _leads_on(self, node: str) -> bool:
        done = node in self.lost or (node in self.boxes and self.finished(self.boxes[node]))
        return not done and math.isfinite(self.federation.profile(node).next_available(self.clock))

    def _dropped(self, node: str, round: int) -> bool:
        federation = self.federation
        if not self.out and federation.dropout.never:
            return False
        links = federation.topology.static[node]
        if links.children:
            return False
        if node in self.out and round > self.out[node] and not any(map(federation.merges_as_mail_comes, links.parent)):
            return True
        return federation.dropout.out(federation.seed, node, round)

    # -- mail ------------------------------------------------------------------------------------------------
    def _post(self, sender: str, id: tuple[int, int], departure: float, send: Send) -> list[dict[str, Any]]:
        """Put a send on its way to every recipient; returns its rows for the ledger."""
        kind, round, receivers = send.kind, send.round, send.to
        assert round is not None  # the host has set both
        assert receivers is not None
        allowed = self.federation.egress.get(sender)
        withheld = send.withheld or (allowed is not None and kind.name not in allowed)
        payload = 0 if send.withheld else kind.payload(send.body)
        # Node ids are plain ASCII, so that recipients' messages differ in size by their ids alone.
        wire = Message(kind.name, sender, "", round, id, send.body).wire
        rows = []
        out = self._dropped(sender, round)
        for receiver in receivers:
            path = self.federation.topology.route(sender, receiver)
            message = Message(kind.name, sender, receiver, round, id, send.body)
            dropped = out or self._dropped(receiver, round)
            arrivals = self.network.arrivals(message, path, payload, departure)
            for arrival in arrivals:
                absent = withheld or dropped
                event = Absence(kind.name, sender, receiver, round) if absent else Arrival(message)
                self.queue.push(arrival, event)
            row = {
                "round": round,
                "kind": kind.name,
                "from": sender,
                "to": receiver,
                "status": _status(withheld, dropped, bool(arrivals)),
                "payload": payload,
                "wire": wire + len(receiver),
                "hops": len(path) - 1,
                "time": departure,
            }
            rows.append(row)
        return rows

    def _check_made(self, node: str, moment: float, send: Send) -> None:
        """Name those of whose answers a node has made a message to its children that no child can take.

        Each answer was sound by itself. Without this, only the children would be in the ledger, as they refuse it.
        """
        if send.kind.to != "children" or send.withheld:
            return
        if not (verdict := send.kind.verdict(send.body, self.federation.bound)):
            return
        assert send.round is not None  # the host has set it
        mail = self.ledger.newest_mail(node).items()
        made = " and ".join(described(kind, round, ", ".join(senders)) for (kind, round), senders in mail)
        who = described(send.kind.name, send.round, node)
        self.ledger.incident(moment, node, "unsound", f"{who}: {verdict}; made of {made or 'no mail'}")

    def _arrive(self, message: Message) -> None:
        """Check a message at the receiver's door: a bad one is counted and answers "absent"."""
        box = self.box(message.receiver)
        if box.knows(message):
            self.ledger.incident(self.clock, box.node, "duplicate", _describe(message))
            return
        try:
            if self.encode:
                message = self.door.through_bytes(message)
            if message.sender in self.out:
                raise PutOut(f"it was put out in round {self.out[message.sender]}")
            self.door.check_mail(message, self.links(box.node, message.round), self.host.shape(box.node))
        except Refused as error:
            box.refuse(message)
            reason = f"{_describe(message)}: {error}"
            self.ledger.incident(self.clock, box.node, "refused", reason)
            if not isinstance(error, PutOut):
                self.refusals.refuse(message, reason)
                self._blame(message.sender, self.clock, box.node)
        else:
            self.refusals.take(message.kind)
            box.take(message)

    def _blame(self, sender: str, moment: float, at: str) -> None:
        """Count a message against its sender; put it out when that is often enough, and the cause can only be itself.

        What a node with children sends is made of others' answers. Where half of a role or more have sent what was
        refused, what they were sent is the likely cause.
        """
        self.blame[sender] += 1
        most, roles = self.federation.expel, self.federation.topology.roles
        if most is None or self.blame[sender] < most or self.federation.topology.static[sender].children:
            return
        alike = [node for node, role in roles.items() if role == roles[sender]]
        if 2 * sum(self.blame[node] > 0 for node in alike) < len(alike):
            self.put_out(sender, moment, at, f"{self.blame[sender]} of its messages were refused or doubted")

    def put_out(self, node: str, moment: float, at: str, why: str) -> None:
        """Take no more part of a participant: it is asked nothing more, and what it sends is refused."""
        if node in self.out or node not in self.federation.topology.roles:
            return
        self.out[node] = self.box(at).round
        self.ledger.incident(moment, at, "put out", f"{node} from round {self.out[node] + 1} on: {why}")

    def links(self, node: str, round: int) -> Links:
        """Return a node's links among those who have joined."""
        if self.federation.topology.drawn:
            return self.door.links(node, round, self.outside)
        if node not in self.cache:
            self.cache[node] = self.door.links(node, round, self.outside)
        return self.cache[node]

    def box(self, node: str) -> Mailbox:
        if node not in self.boxes:
            topology = self.federation.topology
            box = self.boxes[node] = Mailbox(node, topology.roles[node], self.method, topology.level(node))
            if node in self.idle:
                box.restore(self.idle.box(node))
            else:
                self.dirty.add(node)
        return self.boxes[node]

    # -- the end ---------------------------------------------------------------------------------------------
    def _check_heard(self, ended: bool = False) -> None:
        """End a simulation in which a kind of message was refused on every link that it can take, and never accepted.

        What some links have not carried yet may still fit: it decides at the end. A deployment goes on, and says so.
        """
        for name, found in self.refusals.refused.items():
            if (ended or self._ways(self.kinds[name], found) <= found.links) and not self._is_deployment():
                self._save()
                anew = "" if self.record is None else "; when the method is mended, begin in another folder"
                raise Unheard(f"no {name!r} was ever accepted: {found.first}{anew}")
            if name not in self.refusals.told and all(n in self.boxes and self.boxes[n].round for n in self.leads):
                self.refusals.told.add(name)
                log.warning("every %r was refused so far, and the run goes on: %s", name, found.first)

    def _ways(self, kind: Kind, found: OnlyRefused) -> set[tuple[str, str]]:
        """Return the links that a kind can still take, from all nodes of the roles that have sent it."""
        topology = self.federation.topology
        roles = {topology.roles[sender] for sender, _ in found.links}
        able = {n for n in topology.roles if self._takes_part(n)}
        withheld = {n for n, allowed in self.federation.egress.items() if kind.name not in allowed}
        senders = [n for n, role in topology.roles.items() if role in roles and n in able - withheld]
        return {(n, to) for n in senders for to in topology.static[n].group(kind.to) if to in able}

    def _is_deployment(self) -> bool:
        """Say whether nodes are on machines of other organisations."""
        return any(self.host.shape(node) is None for node in self.boxes)

    def _takes_part(self, node: str) -> bool:
        """Say whether a node is not gone for good, and no dropout keeps it from every round."""
        weak = node in self.federation.dropout.always and not self.federation.topology.static[node].children
        return not weak and math.isfinite(self.federation.profile(node).next_available(self.clock))

    def _check_finished(self) -> None:
        """Raise `Stalled` if a node that could still lead has not done its rounds."""
        behind = [n for n in self.leads if n not in self.boxes or not self.finished(self.boxes[n])]
        alive = [n for n in behind if self._leads_on(n) and n not in self.host.others]
        if not alive and len(behind) < len(self.leads):
            return  # whoever is behind has gone for good, or is of another organisation; the others have finished
        named = [f"{n} (round {self.boxes[n].round if n in self.boxes else 0})" for n in (alive or behind)[:5]]
        why = "; ".join(self._obstacles()[:8]) or "no mail is on its way and no reaction began another round"
        raise Stalled(f"the federation stopped short of {self.rounds} rounds at {', '.join(named)}: {why}")

    def _obstacles(self) -> list[str]:
        """Return who waits for whom, or else what lies unread, and the last refusal."""
        boxes = [box for _, box in sorted(self.boxes.items()) if not self.finished(box)]
        found = []
        for box in boxes:
            for kind, round, missing in box.waits():
                if missing:
                    whom = ", ".join(map(self._describe_node, missing))
                    found.append(f"{box.node} waits for {kind!r} of round {round} from {whom}")
        if not found:
            lying = Counter((message.kind, box.node) for box in boxes for message in box.inbox)
            found = [f"{count} {kind!r} unread at {node}" for (kind, node), count in lying.items()][:5]
        refused = [i for i in self.ledger.incidents if i["incident"] == "refused"]
        found += [f"{i['node']} refused {i['detail']}" for i in refused[-1:]]
        return found + [i["detail"] for i in self.ledger.incidents if i["incident"] == "unsound"][-1:]

    def _describe_node(self, node: str) -> str:
        profile = self.federation.profile(node)
        if not math.isfinite(profile.next_available(self.clock)):
            return f"{node} (gone since {profile.available[-1][1]:g} s)"
        if node in self.outside:
            return f"{node} (has not joined)"
        return node

    def _result(self, seconds: float) -> Result:
        done = max((b.round for b in self.boxes.values() if b.role == self.method.roles[0]), default=0)
        rounds = min(done, self.rounds)  # a node of another organisation may say that it has done more
        return Result(
            rounds,
            Table(self.table.rows, self.table.task),
            Ledger(self.ledger.rows),
            clock=self.clock,
            seconds=seconds,
            nodes=tuple(dict.fromkeys([*self.boxes, *self.idle])),
            homes=self.federation.homes,
            headline=self.method.headline,
            host=self.host,
        )

    # -- state -----------------------------------------------------------------------------------------------
    def _save(self) -> None:
        if self.record is None:
            return
        while any(not a.away for a in self.pending):  # a reaction is whole or not at all; finishing early is harmless
            self._step(here=True)
        self.record.save(self)

    def encode_node(self, node: str) -> bytes:
        """Return one node's row in a snapshot: its own state and its mailbox."""
        return codec.pack({"node": self.host.state(node), "box": self.boxes[node].state()})

    def write_row(self, node: str) -> None:
        self.idle.put(node, self.encode_node(node), self._is_awake(node))

    def restore_nodes(self) -> None:
        """Put the nodes back of which there are rows. Where the host reads rows itself, only the awake ones' mail."""
        if self.letting is not None:
            for node in sorted(self.idle.store.marked):
                self.box(node)
            return
        for node in list(self.idle):
            self.box(node)
            self.host.restore(node, self.idle.state(node))

    def encode_queue(self) -> bytes:
        """Return the rest of a snapshot: clock, mail in flight, timers, who has yet to join."""
        self.queue.prune(
            lambda event, at: isinstance(event, Deadline) and not self.box(event.node).awaits(event.reaction, at)
        )
        here: dict[str, Any] = {"clock": self.clock, "rounds": self.rounds, "outside": sorted(self.outside)}
        if self.pending:  # on other machines
            here["pending"] = [activation.question.plain() for activation in self.pending]
            for activation in self.pending:
                activation.recorded = True
        if self.blame:
            here |= {"blame": dict(self.blame), "out": self.out}
        here |= {"refusals": self.refusals.state(), "network": self.network.state(self.clock)}
        return codec.pack({**here, "queue": self.queue.state()})

    def restore_queue(self, data: bytes) -> None:
        value = codec.unpack(data)
        self.clock, self.rounds, self.outside = value["clock"], value["rounds"], set(value["outside"])
        asked = [Question.of(plain) for plain in value.get("pending", [])]
        self.pending = [Activation(question, due=question.start, away=True, recorded=True) for question in asked]
        self.queue.restore(value["queue"])
        self.network.restore(value["network"])
        self.refusals.restore(value.get("refusals"), self.kinds)
        self.blame, self.out = Counter(value.get("blame", {})), dict(value.get("out", {}))


def _status(withheld: bool, dropped: bool, arrives: bool) -> str:
    """Return what the ledger says of a message that a node has sent."""
    if withheld:
        return "withheld"
    if dropped:
        return "dropped"
    return "sent" if arrives else "lost"


def _describe(message: Message) -> str:
    return described(message.kind, message.round, message.sender)
