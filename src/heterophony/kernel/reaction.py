"""Which mail wakes which function: triggers, and `on`, which attaches a function to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from heterophony.kernel.message import Kind

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Round:
    """The node begins a round: at the start, and whenever a reaction has raised `node.round`.

    No round begins when the run has had its rounds. A node of the leading role stops when it has done its own, and then
    takes no more mail either. The others stop when all nodes of the leading role have. A larger number of rounds sets
    them going again.
    With `also`, the reaction gets an inbox too. Its `also` is all mail of these kinds that has come since, so that a
    node that waits for nobody hears of the others.
    """

    also: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class Each:
    """Every single message of this kind, in the order of arrival."""

    kind: Kind
    also: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class Every:
    """One message from each member of a group: a window, keyed by the node's round.

    `of` is a link ("children", "peers", ...) or a group that a reaction set (`node.cohort`). The window of a link opens
    when the node's round begins, that of a group when the reaction that set it ends.
    The window fires when all have answered, or `deadline` virtual seconds after it opened, with at least `quorum`
    messages (an int is a count, a float in (0, 1] a share of the group). A missing, refused or withheld message is the
    answer "absent". Below the quorum the window is re-armed once. Then the reaction gets no mail, and the round is
    recorded as skipped. Mail for a past window is dropped. With `late="accept"` it stands behind the mail of the next
    one and tells its staleness.
    `share` says which share of its children the method draws for a group. It is read before a run, to see whether a
    quorum can be reached and whether participants miss rounds. All three may name an option of the method, and so may
    `least`: a group that is always smaller is refused when the federation is built.
    """

    kind: Kind
    of: str
    quorum: int | float | str = 1
    deadline: float | str | None = None
    late: Literal["drop", "accept"] = "drop"
    also: tuple[Kind, ...] = ()
    share: float | str = 1.0
    least: int | str = 0


@dataclass(frozen=True)
class Count:
    """Any `n` messages of this kind, whoever sent them and however stale. `n` may name an option."""

    kind: Kind
    n: int | str
    also: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class Clock:
    """The node's own clock: it strikes after every so many virtual seconds, whether mail has come or not.

    A node that is busy or away reacts when it can, once, however often the clock has struck since. All mail that has
    come goes first. Such a reaction sends nothing. So clocks keep no run going. They wake nobody any more when nobody
    leads.
    `every` may name an option. Where that is none, there is no clock.
    """

    every: float | str | None
    also: ClassVar[tuple[Kind, ...]] = ()


Trigger = Round | Each | Every | Count | Clock


@dataclass(frozen=True)
class Reaction:
    """A function of a method, what wakes it, and on which roles."""

    name: str
    trigger: Trigger
    roles: tuple[str, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of mail that it consumes."""
        if isinstance(self.trigger, Round | Clock):
            return self.trigger.also
        return (self.trigger.kind, *self.trigger.also)


def on(trigger: Trigger | type[Round], role: str | tuple[str, ...] | None = None) -> Callable[[F], F]:
    """Attach a function to a trigger, on one role, several, or (None) all roles of the method.

    The function gets the node and its mail (one message for `Each`, a list for `Every` and `Count`; no second
    argument for a `Clock`, or a `Round` that sweeps nothing along), yields work, and returns messages.
    """
    roles = (role,) if isinstance(role, str) else role

    def attach(function: F) -> F:
        function.__dict__["reacts"] = (trigger() if isinstance(trigger, type) else trigger, roles)
        return function

    return attach
