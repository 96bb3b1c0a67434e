"""Whose message will not come: nodes of other organisations, whose silence is their own and nobody's mistake here.

Asked when nothing happens any more: no mail and no timer is under way, and whoever has a question open gives no answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from heterophony.engines.event import Absence
from heterophony.kernel.mailbox import Mailbox
from heterophony.kernel.reaction import Every

SILENT = "it has answered all that it was sent, and this did not come"
REFUSES = "it has only refused and failed for longer than the federation's patience"


@dataclass(frozen=True)
class _Wait:
    """An open window that is not complete."""

    round: int
    place: int  # of its reaction in the method
    kind: str
    node: str
    level: int  # of the node
    missing: tuple[str, ...]
    enough: bool  # whether it has its quorum, or no answer at all


def silent(boxes: Iterable[Mailbox], others: Collection[str], asked: Mapping[str, bool]) -> list[tuple[Absence, str]]:
    """Return the absences that let the earliest open windows fire, and why; none if somebody may still answer.

    `others` are nodes of other organisations. `asked` has those with an open question, and whether they have only
    refused it for so long that nobody waits for them where a quorum is there without them, or where nobody else has
    answered: such a round is skipped. Only windows that fire then
    are looked at, those of the earliest round and in it of the first reaction: what happens next may bring the messages
    that others wait for. A node that waits itself, or whose message is still to be read, may yet be asked for more, so
    that it counts as silent only where nothing else is left. If nobody at all says anything, or all refuse, nobody is
    absent.
    """
    if all(asked.get(node, False) for node in others):
        return []
    waits, unread = _waits(boxes)
    able = [wait for wait in waits if _may_be_silent(wait, others, asked)]
    able = _with_idle_senders(able, waits, unread, asked) or able
    if not able:
        return []
    first = min((wait.round, wait.place) for wait in able)
    missing = [(wait, node) for wait in able if (wait.round, wait.place) == first for node in wait.missing]
    if {node for _, node in missing} >= set(others):
        return []
    return [
        (Absence(wait.kind, node, wait.node, wait.round), REFUSES if node in asked else SILENT)
        for wait, node in missing
    ]


def _with_idle_senders(
    able: Iterable[_Wait], waits: Iterable[_Wait], unread: Collection[str], asked: Mapping[str, bool]
) -> list[_Wait]:
    """Return those windows whose missing messages could not follow from anything that is still to happen."""
    waiting: dict[str, _Wait] = {}  # by node, the earliest that it waits for itself
    for wait in waits:
        waiting[wait.node] = min(wait, waiting.get(wait.node, wait), key=lambda each: each.round)

    def idle(node: str, wait: _Wait) -> bool:
        """Say whether nothing is left from which its message to that window could follow."""
        if node in asked or node not in waiting:
            return node in asked or node not in unread
        own = waiting[node]  # nodes of another level count rounds of their own
        return node not in unread and own.level == wait.level and own.round > wait.round

    return [wait for wait in able if all(idle(node, wait) for node in wait.missing)]


def _may_be_silent(wait: _Wait, others: Collection[str], asked: Mapping[str, bool]) -> bool:
    """Say whether all whom a window misses may be counted as absent: they have answered, or only refuse."""
    for node in wait.missing:
        if node not in others:
            return False
        refuses = asked.get(node, False)
        if refuses and not wait.enough:
            return False
        if not refuses and node in asked:
            return False
    return True


def _waits(boxes: Iterable[Mailbox]) -> tuple[list[_Wait], set[str]]:
    """Return all windows that are not complete, and whose messages lie in them."""
    waits, unread = [], set()
    for box in boxes:
        places = {r.trigger.kind.name: i for i, r in enumerate(box.method.reactions) if isinstance(r.trigger, Every)}
        for kind, round, missing in () if box.busy else box.waits():
            if missing:
                enough = box.enough(kind, round)
                waits.append(_Wait(round, places[kind], kind, box.node, box.level, tuple(missing), enough))
                unread |= {m.sender for m in box.inbox if (m.kind, m.round) == (kind, round)}
    return waits, unread
