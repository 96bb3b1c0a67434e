"""The seam between the clock and the place where reactions are executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from heterophony.engines.idle import Idle
from heterophony.engines.question import Answer, Question
from heterophony.kernel.fields import Shape
from heterophony.kernel.message import Send


@dataclass
class Activation:
    """A question on its way to its answer, and what the engine knows of it meanwhile."""

    question: Question
    due: float = 0.0  # nothing more of it can leave the node before this moment
    early: list[tuple[float, Send]] = field(default_factory=list)  # the first of the answer's sends, with departures
    posted: list[list[dict[str, Any]]] = field(default_factory=list)  # those of them on their way: rows of the ledger
    answer: Answer | None = None
    away: bool = False  # it runs on another machine, which may take its time: a snapshot holds the question
    recorded: bool = False  # a snapshot holds it
    lost: bool = False  # no sign of it for so long that a run that is otherwise over need not wait
    refused: bool = False  # it has only refused and failed for so long that windows need not wait either
    frame: Any = field(default=None, repr=False)  # the host's own

    @property
    def node(self) -> str:
        """Return the node that is asked."""
        return self.question.node


class Host(Protocol):
    """Holds nodes and executes their reactions."""

    others: frozenset[str]  # nodes of other organisations: a run does without those who say nothing

    def begin(self, activation: Activation) -> None:
        """Begin an activation and set its `due`; it may finish at once."""

    def step(self, activations: Sequence[Activation]) -> None:
        """Step all of them, together: each gets a later `due` or its answer."""

    def shape(self, node: str) -> Shape | None:
        """Return what mail to the node is checked against; None where its door is on another machine."""

    def state(self, node: str) -> dict[str, Any]:
        """Return a node's state between two reactions, as plain values."""

    def restore(self, node: str, state: dict[str, Any]) -> None:
        """Put a node into a state."""

    def digest(self, node: str) -> bytes:
        """Return a hash of the node's models."""


@runtime_checkable
class LetsGo(Protocol):
    """A host that need not hold all nodes as objects: a node that is none is as its row says, or as it is built."""

    idle: Idle | None  # the rows; an engine sets it

    def surplus(self) -> Sequence[str]:
        """Return idle nodes for which there is no room as objects, each once after a reaction."""

    def release(self, id: str) -> None:
        """Forget a node's object."""
