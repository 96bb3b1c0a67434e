"""A node's mail and what it waits for.

A mailbox knows headers, rounds and clocks, never a model. So it can live on a relay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from heterophony.kernel.message import LINKS, Body, Message
from heterophony.kernel.method import Method
from heterophony.kernel.reaction import Clock, Each, Every, Reaction, Round
from heterophony.kernel.topology import Links

Made = TypeVar("Made")


class Inbox(list[Message]):
    """The mail of an `Every` (in the group's order, late mail last) or `Count`; `also` is what was swept along."""

    also: tuple[Message, ...] = ()


class SumOnly(TypeError):
    """A method asks for a single message where only the sum of all is known."""


class Total:
    """The one message that stands for all: its means are theirs, its counts are added up. It has no sender."""

    staleness = 0

    def __init__(self, kind: str, round: int, body: Body) -> None:
        self.kind, self.round, self.body = kind, round, body

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "body":
            raise AttributeError(name)
        if name not in self.body:
            raise SumOnly(f"{name}: of {self.kind!r} only the sum is known here, under `secure`")
        return self.body[name]


class Summed(Inbox):
    """An inbox of which only the sum is known, and whose messages are in it."""

    def __init__(self, total: Total, senders: Sequence[str] = ()) -> None:
        super().__init__()
        self.total, self.senders = total, tuple(senders)

    def _refuse(self, *args: Any) -> NoReturn:
        raise SumOnly(
            f"of {self.total.kind!r} only the sum is known here, under `secure`: ask the cohort for a mean, or "
            "`summands` for what stands for all"
        )

    __iter__ = __getitem__ = __len__ = __contains__ = __reversed__ = __add__ = _refuse

    def __bool__(self) -> bool:
        return True


def summands(mail: Sequence[Message]) -> Sequence[Message]:
    """Return what a mean is taken of: the messages or, where only their sum is known, the one that stands for all."""
    return [mail.total] if isinstance(mail, Summed) else mail  # type: ignore[list-item]


def senders(mail: Sequence[Message]) -> tuple[str, ...]:
    """Return whose messages these are, or are in the sum."""
    return mail.senders if isinstance(mail, Summed) else tuple(message.sender for message in mail)


def by_sender(mail: Sequence[Message], read: Callable[[Message], Made]) -> dict[str, Made]:
    """Return what is read of each message, by its sender; of a sum, what is read of that, under no one's name."""
    if isinstance(mail, Summed):
        return {"": read(mail.total)}  # type: ignore[arg-type]
    return {message.sender: read(message) for message in mail}


Mail = Message | Inbox | None  # what a reaction is given


def messages(mail: Mail) -> Sequence[Message]:
    """Return all messages of some mail, with those that were swept along."""
    if mail is None:
        return ()
    if isinstance(mail, Message):
        return (mail, *mail.also)
    return [*mail, *mail.also]


def swapped(mail: Mail, body: Callable[[Message], Body]) -> Mail:
    """Return the same mail with other bodies."""
    if mail is None:
        return None
    if isinstance(mail, Message):
        return _swapped(mail, body)
    found = Inbox([_swapped(message, body) for message in mail])
    found.also = tuple(_swapped(message, body) for message in mail.also)
    return found


def _swapped(message: Message, body: Callable[[Message], Body]) -> Message:
    """Return the same message with another body, and so those that were swept along with it."""
    found = body(message)
    if found is message.body and not message.also:  # as most are
        return message
    return replace(message, body=found, also=tuple(_swapped(other, body) for other in message.also))


@dataclass
class Window:
    """What an `Every` trigger waits for in one round."""

    round: int
    members: tuple[str, ...]
    deadline: float | None = None
    absent: set[str] = field(default_factory=set)
    rearmed: bool = False
    expired: bool = False

    def plain(self) -> dict[str, Any]:
        """Return the window as a plain value."""
        return {**vars(self), "absent": sorted(self.absent)}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Window:
        """Return the window whose plain value this is."""
        return cls(**{**value, "absent": set(value["absent"])})


@dataclass
class Ready:
    """A reaction that can fire, with the mail it will consume."""

    reaction: Reaction
    mail: Message | Inbox | None
    consumed: tuple[Message, ...]
    incidents: tuple[tuple[str, str], ...] = ()  # (what, detail) to be recorded when it fires


class Mailbox:
    """The inbox, windows and counters of one node."""

    def __init__(self, node: str, role: str, method: Method, level: int = 0) -> None:
        self.node, self.role, self.method, self.level = node, role, method, level
        self.reactions = [reaction for reaction in method.reactions if role in reaction.roles]
        self.windowed = [reaction for reaction in self.reactions if isinstance(reaction.trigger, Every)]
        self.inbox: list[Message] = []
        self.absences: set[tuple[str, str, int]] = set()  # (kind, sender, round) answered "absent"
        self.windows: dict[str, Window] = {}  # by reaction, open ones only
        self.closed: dict[str, int] = {}  # by reaction, the last round whose window has fired
        self.seen: dict[str, tuple[int, int]] = {}  # by sender, the newest id: mail on an edge keeps its order
        self.begins = any(isinstance(reaction.trigger, Round) for reaction in self.reactions)
        self.round = 0
        self.begun = -1  # the last round that a reaction to `Round` has begun
        self.activations = 0
        self.busy = False  # whether a reaction is running
        self.struck: set[str] = set()  # reactions whose clock has struck since they last fired

    def _setting(self, value: Any) -> Any:
        """Return a trigger's number on this node."""
        return self.method.setting(value, self.node, str(self.level), self.role)

    # -- mail comes in ---------------------------------------------------------------------------------------
    def knows(self, message: Message) -> bool:
        """Return whether this message was here before. Because of this, retries are harmless."""
        return message.id <= self.seen.get(message.sender, (-1, -1))

    def take(self, message: Message) -> None:
        """Put a message into the inbox."""
        self.seen[message.sender] = message.id
        self.inbox.append(message)

    def refuse(self, message: Message) -> None:
        """Drop a message that must not be used. It is its sender's answer "absent"."""
        self.seen[message.sender] = message.id
        self.absent(message.kind, message.sender, message.round)

    def absent(self, kind: str, sender: str, round: int) -> None:
        """Note that the sender's answer in that round is "absent". Only windows want to know."""
        for reaction in self.windowed:
            if isinstance(reaction.trigger, Every) and reaction.trigger.kind.name == kind:
                self.absences.add((kind, sender, round))

    # -- windows ---------------------------------------------------------------------------------------------
    def open(
        self,
        links: Links,
        groups: Mapping[str, tuple[str, ...]],
        now: float,
        dropped: Callable[[str], bool] = lambda node: False,
    ) -> list[tuple[str, Window]]:
        """Open this round's windows: those of links always, those of other groups when a reaction has set them.

        Return those opened, so that the engine can set their timers.
        """
        opened = []
        for reaction in self.windowed:
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
            deadline = None if wait is None else now + wait
            absent = {member for member in members if dropped(member) or dropped(self.node)}
            window = Window(self.round, members, deadline, absent)
            self.windows[reaction.name] = window
            opened.append((reaction.name, window))
        return opened

    def _round_of(self, reaction: Reaction) -> int:
        """Return the round of a reaction's open window; -1 where none is open."""
        window = self.windows.get(reaction.name)
        return -1 if window is None else window.round

    def awaits(self, name: str, deadline: float) -> bool:
        """Return whether a reaction's window with that deadline is still open."""
        return name in self.windows and self.windows[name].deadline == deadline

    def expire(self, name: str, now: float) -> float | None:
        """Act on a deadline that has passed: below the quorum re-arm the window once, else let it fire.

        Return the new deadline of a window that is re-armed.
        """
        window = self.windows[name]
        reaction = next(r for r in self.reactions if r.name == name)
        trigger = reaction.trigger
        assert isinstance(trigger, Every)
        enough = len(self._answers(trigger, window)) >= self._quorum(trigger, window)
        if not enough and not window.rearmed:
            window.rearmed = True
            window.deadline = now + float(self._setting(trigger.deadline))
            return window.deadline
        window.expired = True
        return None

    # -- clocks ----------------------------------------------------------------------------------------------
    def strike(self, name: str) -> None:
        """Note that the clock of a reaction has struck."""
        self.struck.add(name)

    @property
    def rests(self) -> bool:
        """Return whether nothing lies here that could fire, be waited for or be asked for: only counters are left."""
        return not (self.busy or self.inbox or self.windows or self.absences or self.struck)

    # -- what can fire ---------------------------------------------------------------------------------------
    def ready(self) -> Ready | None:
        """Return the reaction to fire now, if any: a new round first, then by the age of the mail that completes it."""
        if not (self.inbox or self.windows or self.struck or self.begins):  # as most are, most of the time
            return None
        first: tuple[int, Ready] | None = None
        for reaction in self.reactions:
            hit = self._try(reaction)
            if hit is not None and (first is None or hit[0] < first[0]):  # of equal age, the first in the class
                first = hit
        return None if first is None else first[1]

    def fire(self, ready: Ready) -> None:
        """Consume the mail and close the window: the reaction is going to run."""
        if len(ready.consumed) == len(self.inbox):  # all of it
            self.inbox = []
        else:
            consumed = {id(message) for message in ready.consumed}
            self.inbox = [message for message in self.inbox if id(message) not in consumed]
        self.activations += 1
        self.busy = True
        self.struck.discard(ready.reaction.name)
        if isinstance(ready.reaction.trigger, Round):
            self.begun = self.round
        if isinstance(ready.reaction.trigger, Every):
            round = self.windows.pop(ready.reaction.name).round
            self.closed[ready.reaction.name] = round
            kind = ready.reaction.trigger.kind.name
            self.absences = {absence for absence in self.absences if absence[0] != kind or absence[2] > round}

    def late(self) -> list[Message]:
        """Remove and return mail for windows that are past, where the trigger drops it."""
        dropped: list[Message] = []
        for reaction in self.windowed if self.inbox else ():
            trigger = reaction.trigger
            if isinstance(trigger, Every) and trigger.late == "drop":
                dropped += [m for m in self._of(trigger.kind.name) if self._past(reaction, m.round)]
        gone = {id(message) for message in dropped}
        if gone:
            self.inbox = [message for message in self.inbox if id(message) not in gone]
        return dropped

    def _try(self, reaction: Reaction) -> tuple[int, Ready] | None:
        """Return a reaction that can fire, and the place in the inbox of the mail that completed it."""
        trigger = reaction.trigger
        if isinstance(trigger, Round):
            return self._try_round(reaction, trigger)
        if isinstance(trigger, Clock):  # behind all mail
            return (len(self.inbox), Ready(reaction, None, ())) if reaction.name in self.struck else None
        if isinstance(trigger, Each):
            return self._try_each(reaction, trigger)
        waiting = self._of(trigger.kind.name)
        if isinstance(trigger, Every):
            return self._try_window(reaction, trigger, waiting)
        count = int(self._setting(trigger.n))
        chosen = waiting[:count]
        if not chosen or len(waiting) < count:
            return None
        return self._ready(reaction, chosen, ())

    def _try_each(self, reaction: Reaction, trigger: Each) -> tuple[int, Ready] | None:
        """Return the reaction to the oldest message of a kind, if there is one."""
        for place, message in enumerate(self.inbox):
            if message.kind == trigger.kind.name:
                if trigger.also:
                    return self._ready(reaction, [message], ())
                return place, Ready(reaction, self._stamped(message), (message,))
        return None

    def _try_round(self, reaction: Reaction, trigger: Round) -> tuple[int, Ready] | None:
        """Return the reaction that begins a round, unless this round has begun. It goes before all others."""
        if self.begun >= self.round:
            return None
        if not trigger.also:
            return -2, Ready(reaction, None, ())
        _, ready = self._ready(reaction, [], ())
        return -2, ready

    def _try_window(self, reaction: Reaction, trigger: Every, waiting: list[Message]) -> tuple[int, Ready] | None:
        """Return the reaction of a window if all have answered, or if its deadline has passed."""
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
        if not window.members and trigger.of == "peers":  # the one that random pairs have left alone
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
        """Return the reaction with its mail, and the place in the inbox of the mail that completed it."""
        trigger = reaction.trigger
        also = [m for kind in trigger.also for m in self._of(kind.name)]
        stamped = [self._stamped(m) for m in chosen]
        swept = tuple(self._stamped(m) for m in also)
        mail: Message | Inbox
        if isinstance(trigger, Each):
            mail = replace(stamped[0], also=swept)
        else:
            mail = Inbox(stamped)
            mail.also = swept
        places = {id(message): place for place, message in enumerate(self.inbox)}
        age = max((places[id(message)] for message in chosen), default=-1)
        return age, Ready(reaction, mail, (*chosen, *unused, *also), tuple(incidents))

    def _stamped(self, message: Message) -> Message:
        """Return the message with its age, by this node's count."""
        age = max(0, self.round - message.round)
        return message if message.staleness == age else replace(message, staleness=age)

    def _of(self, kind: str) -> list[Message]:
        """Return the mail of a kind, in the order of arrival."""
        return [message for message in self.inbox if message.kind == kind]

    def _answers(self, trigger: Every, window: Window) -> dict[str, Message]:
        """Return the answers that a window has, by sender."""
        answers: dict[str, Message] = {}
        members = set(window.members) - self._absent(trigger, window)
        for message in self._of(trigger.kind.name):
            if message.round == window.round and message.sender in members:
                answers.setdefault(message.sender, message)
        return answers

    def _absent(self, trigger: Every, window: Window) -> set[str]:
        """Return the members of a window whose answer is "absent"."""
        asked = (trigger.kind.name, window.round)
        refused = {sender for kind, sender, round in self.absences if (kind, round) == asked}
        return window.absent | refused

    def _quorum(self, trigger: Every, window: Window) -> int:
        """Return how many answers are a window's quorum."""
        quorum: int | float = self._setting(trigger.quorum)
        if isinstance(quorum, int):
            return quorum
        if not 0 < quorum <= 1:
            raise ValueError(f"a quorum is a count (int) or a share in (0, 1] (float), got {quorum}")
        return math.ceil(quorum * len(window.members) - 1e-9)  # 0.55 * 100 is a little more than 55

    def _past(self, reaction: Reaction, round: int) -> bool:
        """Return whether a reaction's window of that round is past."""
        return round <= self.closed.get(reaction.name, -1) or round < self._round_of(reaction)

    # -- who waits for whom ----------------------------------------------------------------------------------
    def waits(self) -> Iterable[tuple[str, int, list[str]]]:
        """Yield (kind, round, missing senders) of every open window."""
        for trigger, window in self._open():
            known = self._answers(trigger, window).keys() | self._absent(trigger, window)
            yield trigger.kind.name, window.round, [m for m in window.members if m not in known]

    def enough(self, kind: str, round: int) -> bool:
        """Return whether an open window may do without the rest: it has its quorum, or nothing that would be lost."""
        for trigger, window in self._open():
            if (trigger.kind.name, window.round) == (kind, round):
                answers = len(self._answers(trigger, window))
                return answers == 0 or answers >= self._quorum(trigger, window)
        return False

    def _open(self) -> Iterable[tuple[Every, Window]]:
        """Yield each open window with the trigger that it is of."""
        for reaction in self.reactions:
            if isinstance(reaction.trigger, Every) and reaction.name in self.windows:
                yield reaction.trigger, self.windows[reaction.name]

    # -- state -----------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Return everything, as plain values."""
        return {
            "inbox": [message.plain() for message in self.inbox],
            "absences": sorted(self.absences),
            "windows": {name: window.plain() for name, window in self.windows.items()},
            "closed": self.closed,
            "seen": [" ".join(self.seen), [part for id in self.seen.values() for part in id]],  # a server's has many
            "counters": [self.round, self.begun, self.activations],
            "busy": self.busy,
            "struck": sorted(self.struck),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state."""
        self.inbox = [Message.of(value) for value in state["inbox"]]
        self.absences = set(state["absences"])
        self.windows = {name: Window.of(value) for name, value in state["windows"].items()}
        self.closed, self.busy = state["closed"], state["busy"]
        names, ids = state["seen"]
        self.seen = dict(zip(names.split(), zip(ids[::2], ids[1::2], strict=True), strict=True))
        self.round, self.begun, self.activations = state["counters"]
        self.struck = set(state.get("struck", ()))
