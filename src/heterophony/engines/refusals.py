"""Which kinds of message receivers have taken at least once, and which they have only ever refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from heterophony.kernel.fields import NOT_FINITE, TOO_LARGE
from heterophony.kernel.message import Message


class Unheard(RuntimeError):
    """No message of a kind was ever accepted; the text has the first refusal."""


@dataclass
class OnlyRefused:
    """A kind that was only refused so far: the first refusal, and the links on which there was one."""

    first: str
    links: set[tuple[str, str]] = field(default_factory=set)  # (sender, receiver)


class RefusedKinds:
    """Remembers what was taken and what refused. It is part of a snapshot: a resumed run decides as any other."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.refused: dict[str, OnlyRefused] = {}
        self.told: set[str] = set()  # kinds of which a person was told; no part of a snapshot

    def take(self, kind: str) -> None:
        if kind not in self.taken:
            self.taken.add(kind)
            self.refused.pop(kind, None)

    def refuse(self, message: Message, reason: str) -> None:
        """Count a refusal, unless its cause is a model that has diverged: then the next message may be sound."""
        if message.kind in self.taken or NOT_FINITE in reason or TOO_LARGE in reason:
            return
        found = self.refused.setdefault(message.kind, OnlyRefused(f"{message.receiver} refused {reason}"))
        found.links.add((message.sender, message.receiver))

    def state(self) -> dict[str, Any]:
        refused = {kind: (found.first, sorted(found.links)) for kind, found in sorted(self.refused.items())}
        return {"taken": sorted(self.taken), "refused": refused}

    def restore(self, state: Mapping[str, Any] | None, kinds: Collection[str]) -> None:
        """Put it back. A snapshot of an earlier version says nothing: then all kinds count as taken."""
        self.taken = set(kinds if state is None else state["taken"])
        told = {} if state is None else state["refused"]
        self.refused = {kind: OnlyRefused(first, {(a, b) for a, b in links}) for kind, (first, links) in told.items()}
