"""What happens in virtual time, and the queue of what is going to."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heterophony.kernel.message import Body, Message


@dataclass
class Arrival:
    """A message reaches its receiver."""

    message: Message


@dataclass
class Absence:
    """A receiver learns that a message will not come."""

    kind: str
    sender: str
    receiver: str
    round: int


@dataclass
class Free:
    """A reaction ends: its node can react again, and what it did is on record."""

    node: str
    round: int
    groups: dict[str, tuple[str, ...]]
    rows: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    alone: bool = False  # a clock woke it, and it has sent nothing


@dataclass
class Deadline:
    """A window's time is up."""

    node: str
    reaction: str
    round: int


@dataclass
class Join:
    """A node enters the running federation."""

    node: str


@dataclass
class Wake:
    """A node that was away is back."""

    node: str


@dataclass
class Tick:
    """The clock of a reaction strikes."""

    node: str
    reaction: str


Event = Arrival | Absence | Free | Deadline | Join | Wake | Tick
_TYPES = {kind.__name__: kind for kind in (Absence, Free, Deadline, Join, Wake, Tick)}


class Queue:
    """Events in the order in which they happen.

    At equal times deadlines and clocks come last; ties break by (receiver, sender, sender's counter), never by who was
    faster to compute, so that the order is the same on every engine.
    """

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[Any, ...], Event]] = []
        self.serial = 0  # parts only events that are alike, such as the copies of a duplicated message

    @property
    def moment(self) -> float:
        """Return when the next event happens; infinity if there is none."""
        return float(self.heap[0][0][0]) if self.heap else math.inf

    def push(self, when: float, event: Event) -> None:
        place: tuple[Any, ...]
        if isinstance(event, Arrival):
            message = event.message
            place = (0, message.receiver, message.sender, *message.id)
        elif isinstance(event, Absence):
            place = (0, event.receiver, event.sender, -1, -1)
        elif isinstance(event, (Deadline, Tick)):
            place = (1, event.node, event.reaction, -1, -1)
        else:
            place = (0, event.node, "", -1, -1)
        self.serial += 1
        heapq.heappush(self.heap, ((when, *place, self.serial), event))

    def wave(self) -> list[Event]:
        """Remove and return all that happens at the next moment. Its timers come after all else, by themselves."""
        wave: list[Event] = []
        first = self.heap[0][0][:2] if self.heap else ()
        while self.heap and self.heap[0][0][:2] == first:
            wave.append(heapq.heappop(self.heap)[1])
        return wave

    def prune(self, meaningless: Callable[[Event, float], bool]) -> None:
        """Drop events that would do nothing, so that they do not pile up in snapshots."""
        self.heap = [(key, event) for key, event in self.heap if not meaningless(event, key[0])]
        heapq.heapify(self.heap)

    def state(self) -> dict[str, Any]:
        """Return mail in flight and timers as plain values. A body that goes to many is written once."""
        names: dict[int, str] = {}
        bodies: dict[str, dict[str, Any]] = {}
        events = []
        for (when, *_), event in sorted(self.heap, key=lambda item: item[0]):
            if not isinstance(event, Arrival):
                events.append((when, type(event).__name__, dict(vars(event))))
                continue
            body = event.message.body
            name = names.setdefault(id(body), str(len(names)))
            if name not in bodies:
                bodies[name] = body.whole()
            events.append((when, "Arrival", {**event.message.header, "body": name}))
        return {"events": events, "bodies": bodies}

    def restore(self, state: dict[str, Any]) -> None:
        bodies = {name: Body(body) for name, body in state["bodies"].items()}
        self.heap, self.serial = [], 0
        for when, name, fields in state["events"]:
            if name == "Arrival":
                message = Message(**{**fields, "body": bodies[fields["body"]]})
                self.push(when, Arrival(message))
            else:
                self.push(when, _TYPES[name](**fields))
