"""A node's mail and what it waits for. Knows headers, rounds and clocks, never a model: it can live on a relay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heterophony.kernel.message import LINKS, Body, Message
from heterophony.kernel.method import Method
from heterophony.kernel.reaction import Count, Each, Every, Reaction, Round
from heterophony.kernel.topology import Links


class Inbox(list[Message]):
    """The mail of an `Every` (in the group's order, late mail last) or `Count`; `also` is what was swept along."""

    also: tuple[Message, ...] = ()


Mail = Message | Inbox | None  # what a reaction is given


def messages(mail: Mail) -> list[Message]:
    """All of it, with what was swept along."""
    if mail is None:
        return []
    return [*([mail] if isinstance(mail, Message) else mail), *mail.also]


def swapped(mail: Mail, body: Callable[[Message], Body]) -> Mail:
    """The same mail with other bodies."""
    if mail is None:
        return None
    if isinstance(mail, Message):
        return _swapped(mail, body)
    found = Inbox(_swapped(message, body) for message in mail)
    found.also = tuple(_swapped(message, body) for message in mail.also)
    return found


def _swapped(message: Message, body: Callable[[Message], Body]) -> Message:
    also = tuple(_swapped(other, body) for other in message.also)
    return replace(message, body=body(message), also=also)


@dataclass
class Window:
    """What an `Every` trigger waits for in one round."""

    round: int
    members: tuple[str, ...]
    deadline: float | None = None
    absent: set[str] = field(default_factory=set)
    rearmed: bool = False
    expired: bool = False


@dataclass
class Ready:
    """A reaction that can fire, with the mail it will consume."""

    reaction: Reaction
    mail: Message | Inbox | None
    consumed: tuple[Message, ...]
    incidents: tuple[tuple[str, str], ...] = ()  # (what, detail) to be recorded when it fires


class Mailbox:
    """The inbox, windows and counters of one node."""

    def __init__(self, node: str, role: str, method: Method) -> None:
        self.node, self.role, self.method = node, role, method
        self.reactions = [reaction for reaction in method.reactions if role in reaction.roles]
        self.inbox: list[Message] = []
        self.absences: set[tuple[str, str, int]] = set()  # (kind, sender, round) answered "absent"
        self.windows: dict[str, Window] = {}  # by reaction, open ones only
        self.closed: dict[str, int] = {}  # by reaction, the last round whose window has fired
        self.seen: dict[str, tuple[int, int]] = {}  # by sender, the newest id: mail on an edge keeps its order
        self.round, self.begun, self.activations = 0, -1, 0
        self.busy = False

    def _setting(self, value: Any) -> Any:
        """A trigger's number on this node."""
        return self.method.setting(value, self.node, self.role)

    # -- mail comes in ---------------------------------------------------------------------------------------
    def knows(self, message: Message) -> bool:
        """Whether this message was here before. Retries are harmless because of this."""
        return message.id <= self.seen.get(message.sender, (-1, -1))

    def take(self, message: Message) -> None:
        self.seen[message.sender] = message.id
        self.inbox.append(message)

    def refuse(self, message: Message) -> None:
        """A message that must not be used is its sender's answer "absent"."""
        self.seen[message.sender] = message.id
        self.absent(message.kind, message.sender, message.round)

    def absent(self, kind: str, sender: str, round: int) -> None:
        """The sender's answer in that round is "absent"; only a window wants to know."""
        if any(isinstance(r.trigger, Every) and r.trigger.kind.name == kind for r in self.reactions):
            self.absences.add((kind, sender, round))

    # -- windows ---------------------------------------------------------------------------------------------
    def open(
        self,
        links: Links,
        groups: Mapping[str, tuple[str, ...]],
        now: float,
        dropped: Callable[[str], bool] = lambda node: False,
    ) -> list[tuple[str, Window]]:
        """Open this round's windows: of link groups always, of other groups when the reaction has set them.

        Returns those opened, so that the engine can set their timers.
        """
        opened = []
        for reaction in self.reactions:
            trigger = reaction.trigger
            if not isinstance(trigger, Every) or self.closed.get(reaction.name, -1) >= self.round:
                continue
            if trigger.of in groups:
                members = tuple(groups[trigger.of])
            elif trigger.of in LINKS and self._round_of(reaction) < self.round:
                members = links.group(trigger.of)
            else:
                continue
            wait = self._setting(trigger.deadline)
            window = Window(self.round, members, None if wait is None else now + wait)
            window.absent = {m for m in members if dropped(m) or dropped(self.node)}
            self.windows[reaction.name] = window
            opened.append((reaction.name, window))
        return opened

    def _round_of(self, reaction: Reaction) -> int:
        window = self.windows.get(reaction.name)
        return -1 if window is None else window.round

    def awaits(self, name: str, deadline: float) -> bool:
        """Whether a reaction's window with that deadline is still open."""
        return name in self.windows and self.windows[name].deadline == deadline

    def expire(self, name: str, now: float) -> float | None:
        """A deadline has passed. Below the quorum the window is re-armed once: the new deadline is returned."""
        window = self.windows[name]
        reaction = next(r for r in self.reactions if r.name == name)
        assert isinstance(reaction.trigger, Every)
        if len(self._answers(reaction.trigger, window)) < self._quorum(reaction.trigger, window) and not window.rearmed:
            window.rearmed = True
            window.deadline = now + float(self._setting(reaction.trigger.deadline))
            return window.deadline
        window.expired = True
        return None

    # -- what can fire ---------------------------------------------------------------------------------------
    def ready(self) -> Ready | None:
        """The reaction to fire now, if any: a new round first, then by the age of the mail that completes it."""
        found: list[tuple[int, int, Ready]] = []
        for order, reaction in enumerate(self.reactions):
            hit = self._try(reaction)
            if hit is not None:
                found.append((hit[0], order, hit[1]))
        return min(found, key=lambda item: item[:2])[2] if found else None

    def fire(self, ready: Ready) -> None:
        """Consume the mail and close the window: the reaction is going to run."""
        consumed = {id(message) for message in ready.consumed}
        self.inbox = [message for message in self.inbox if id(message) not in consumed]
        self.activations += 1
        self.busy = True
        if isinstance(ready.reaction.trigger, Round):
            self.begun = self.round
        if isinstance(ready.reaction.trigger, Every):
            round = self.windows.pop(ready.reaction.name).round
            self.closed[ready.reaction.name] = round
            kind = ready.reaction.trigger.kind.name
            self.absences = {a for a in self.absences if a[0] != kind or a[2] > round}

    def late(self) -> list[Message]:
        """Remove and return mail for windows that are past, where the trigger drops it."""
        dropped = []
        for reaction in self.reactions:
            if isinstance(reaction.trigger, Every) and reaction.trigger.late == "drop":
                dropped += [m for m in self._of(reaction.trigger.kind.name) if self._past(reaction, m.round)]
        gone = {id(message) for message in dropped}
        if gone:
            self.inbox = [message for message in self.inbox if id(message) not in gone]
        return dropped

    def _try(self, reaction: Reaction) -> tuple[int, Ready] | None:
        trigger = reaction.trigger
        if isinstance(trigger, Round):
            if self.begun >= self.round:
                return None
            return -2, self._ready(reaction, [], ())[1] if trigger.also else Ready(reaction, None, ())
        waiting = self._of(trigger.kind.name)
        if isinstance(trigger, Each):
            chosen, incidents = waiting[:1], ()
        elif isinstance(trigger, Count):
            n = int(self._setting(trigger.n))
            chosen, incidents = waiting[:n] if len(waiting) >= n else [], ()
        else:
            return self._try_window(reaction, trigger, waiting)
        return self._ready(reaction, chosen, incidents) if chosen else None

    def _try_window(self, reaction: Reaction, trigger: Every, waiting: list[Message]) -> tuple[int, Ready] | None:
        window = self.windows.get(reaction.name)
        if window is None:
            return None
        answers = self._answers(trigger, window)
        known = answers.keys() | self._absent(trigger, window)
        missing = [m for m in window.members if m not in known]
        if missing and not window.expired:
            return None
        enough = len(answers) >= self._quorum(trigger, window)
        incidents = [("timeout", f"{trigger.kind.name} from {m}") for m in missing]
        chosen = [answers[m] for m in window.members if m in answers]
        if not window.members and trigger.of == "peers":  # the odd one out of random pairs
            return self._ready(reaction, [], ())
        if not enough or not window.members:
            incidents.append(("skipped", f"{len(answers)} of {len(window.members)} {trigger.kind.name}"))
            return self._ready(reaction, [], incidents, unused=chosen)
        if trigger.late == "accept":
            chosen += [m for m in waiting if self._past(reaction, m.round)]
        return self._ready(reaction, chosen, incidents)

    def _ready(
        self,
        reaction: Reaction,
        chosen: list[Message],
        incidents: Sequence[tuple[str, str]],
        unused: Sequence[Message] = (),
    ) -> tuple[int, Ready]:
        """The reaction with its mail, and the place in the inbox of the mail that completed it."""
        trigger = reaction.trigger
        also = [m for kind in trigger.also for m in self._of(kind.name)]
        stamped = [self._stamped(m) for m in chosen]
        swept = tuple(self._stamped(m) for m in also)
        mail: Message | Inbox
        if isinstance(trigger, Each):
            mail = replace(stamped[0], also=swept) if swept else stamped[0]
        else:
            mail = Inbox(stamped)
            mail.also = swept
        places = {id(message): place for place, message in enumerate(self.inbox)}
        age = max((places[id(message)] for message in chosen), default=-1)
        return age, Ready(reaction, mail, (*chosen, *unused, *also), tuple(incidents))

    def _stamped(self, message: Message) -> Message:
        """The message with its age, by this node's count."""
        age = max(0, self.round - message.round)
        return message if message.staleness == age else replace(message, staleness=age)

    def _of(self, kind: str) -> list[Message]:
        return [message for message in self.inbox if message.kind == kind]

    def _answers(self, trigger: Every, window: Window) -> dict[str, Message]:
        answers: dict[str, Message] = {}
        members = set(window.members) - self._absent(trigger, window)
        for message in self._of(trigger.kind.name):
            if message.round == window.round and message.sender in members:
                answers.setdefault(message.sender, message)
        return answers

    def _absent(self, trigger: Every, window: Window) -> set[str]:
        refused = {s for k, s, r in self.absences if k == trigger.kind.name and r == window.round}
        return window.absent | refused

    def _quorum(self, trigger: Every, window: Window) -> int:
        quorum: int | float = self._setting(trigger.quorum)
        if isinstance(quorum, int):
            return quorum
        if not 0 < quorum <= 1:
            raise ValueError(f"a quorum is a count (int) or a share in (0, 1] (float), got {quorum}")
        return math.ceil(quorum * len(window.members) - 1e-9)  # 0.55 * 100 is a little more than 55

    def _past(self, reaction: Reaction, round: int) -> bool:
        return round <= self.closed.get(reaction.name, -1) or round < self._round_of(reaction)

    # -- who waits for whom ----------------------------------------------------------------------------------
    def waits(self) -> Iterable[tuple[str, int, list[str]]]:
        """(kind, round, missing senders) of every open window."""
        for reaction in self.reactions:
            window = self.windows.get(reaction.name)
            if window is not None and isinstance(reaction.trigger, Every):
                answered = self._answers(reaction.trigger, window).keys() | self._absent(reaction.trigger, window)
                yield (
                    reaction.trigger.kind.name,
                    window.round,
                    [m for m in window.members if m not in answered],
                )

    def enough(self, kind: str, round: int) -> bool:
        """Whether the answers that an open window has are its quorum."""
        for reaction in self.reactions:
            window, trigger = self.windows.get(reaction.name), reaction.trigger
            if window is not None and isinstance(trigger, Every) and (trigger.kind.name, window.round) == (kind, round):
                return len(self._answers(trigger, window)) >= self._quorum(trigger, window)
        return False

    # -- state -----------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "inbox": [message.plain() for message in self.inbox],
            "absences": sorted(self.absences),
            "windows": {name: {**vars(w), "absent": sorted(w.absent)} for name, w in self.windows.items()},
            "closed": self.closed,
            "seen": self.seen,
            "counters": [self.round, self.begun, self.activations],
            "busy": self.busy,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.inbox = [Message.of(value) for value in state["inbox"]]
        self.absences = set(state["absences"])
        self.windows = {n: Window(**{**w, "absent": set(w["absent"])}) for n, w in state["windows"].items()}
        self.closed, self.seen, self.busy = state["closed"], state["seen"], state["busy"]
        self.round, self.begun, self.activations = state["counters"]
