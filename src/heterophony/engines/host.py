"""The seam between the clock and the place where reactions are executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from heterophony.kernel.fields import Shape
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Message, Send
from heterophony.kernel.topology import Links


@dataclass
class Outcome:
    """What a reaction has done, all of which commits at once."""

    end: float
    sends: list[tuple[float, Send]]  # with the moment of departure; recipients and rounds are set
    rows: list[dict[str, Any]]
    round: int
    groups: dict[str, tuple[str, ...]]  # those that the reaction has set
    incidents: list[tuple[str, str]] = field(default_factory=list)  # (what, detail), from a node on another machine


@dataclass
class Activation:
    """One firing of a reaction on a node, from its start to its outcome."""

    node: str
    number: int
    reaction: str
    mail: Message | Inbox | None
    links: Links
    round: int  # the node's, when it fires
    rounds: int  # the run's, to know the last one
    outside: frozenset[str]  # who has not joined yet
    start: float
    due: float = 0.0  # nothing more of it can leave the node before this moment
    early: list[tuple[float, Send]] = field(
        default_factory=list
    )  # the first of the outcome's sends: left before its end
    posted: list[list[dict[str, Any]]] = field(default_factory=list)  # those of them on their way: rows of the ledger
    outcome: Outcome | None = None
    away: bool = False  # it runs on another machine, which may take its time: a snapshot holds the question
    recorded: bool = False  # a snapshot holds it
    last: bool = False  # whoever leads is in the last round: what comes now is not followed by more
    wave: int = 0  # of the events that made it fire: those of one wave are computed together, snapshot or not
    lost: bool = False  # no sign of it for so long that a run that is otherwise over need not wait
    refused: bool = False  # it has only refused and failed for so long that windows need not wait either
    frame: Any = field(default=None, repr=False)  # the host's own


class Host(Protocol):
    """Holds nodes and executes their reactions."""

    others: frozenset[str]  # nodes of other organisations: a run does without those who say nothing

    def begin(self, activation: Activation) -> None:
        """Accept an activation and set its `due`; it may finish at once."""

    def step(self, activations: Sequence[Activation]) -> None:
        """Advance all of them, together: each gets a later `due` or its outcome."""

    def shape(self, node: str) -> Shape | None:
        """What the node's door checks mail against; None where the door is on another machine."""

    def state(self, node: str) -> dict[str, Any]:
        """A node's state between two reactions, as plain values."""

    def restore(self, node: str, state: dict[str, Any]) -> None:
        """Put a node into a state."""

    def digest(self, node: str) -> bytes:
        """A hash of the node's models."""
