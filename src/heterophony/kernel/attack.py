"""Who lies in a federation, and how: what liars send is made of what they would have sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from heterophony.data.table import Data
from heterophony.data.views import loaded
from heterophony.kernel.fields import Weights
from heterophony.kernel.mailbox import Mail, messages
from heterophony.kernel.message import Body, Send
from heterophony.kernel.node import Node

PAST = 5  # honest messages of each kind that a liar remembers


@dataclass(frozen=True)
class Lie:
    """What a liar knows as a message leaves it: its own honest message, what it has heard, what it would have sent.

    It knows nothing of others' messages but what they sent to it. `past` has, by field, how its own last honest
    weights differed from those that it had heard, this message's last.
    """

    node: Node
    send: Send
    mail: Mail
    past: Mapping[str, list[dict[str, Tensor]]]

    def heard(self, name: str) -> Mapping[str, Tensor] | None:
        """Return the newest value of a field of this name in the mail, if its tensors are of the same shapes."""
        own = self.send.body[name]
        for message in reversed(list(messages(self.mail))):
            found = message.body.get(name)
            if _alike(found, own):
                return found
        return None

    def start(self, name: str) -> dict[str, Tensor]:
        """Return where the weights in a field started: at what was heard; zero, if they are a difference.

        What is nearer to what was heard than to zero is taken for weights.
        """
        own, heard = self.send.body[name], self.heard(name)
        if heard is not None:
            moved = sum(float((own[key] - heard[key].to(own[key])).square().sum()) for key in own)
            if moved < sum(float(tensor.square().sum()) for tensor in own.values()):
                return {key: heard[key].to(tensor) for key, tensor in own.items()}
        return {key: torch.zeros_like(tensor) for key, tensor in own.items()}

    def step(self, name: str) -> dict[str, Tensor]:
        """Return how far the weights in a field have moved from their start."""
        start = self.start(name)
        return {key: tensor - start[key] for key, tensor in self.send.body[name].items()}

    def rng(self, purpose: str) -> torch.Generator:
        """Return a generator that follows from the liar, its round and the kind of the message."""
        return self.node.rng(f"lie/{self.send.kind.name}/{purpose}")


@dataclass(frozen=True)
class Attack:
    """Some nodes lie, from a round on: `how` makes the fields of a message of those that it would have had.

    `poison` changes the rows that liars train on, and `trigger` those on which the attack's success is measured.
    """

    who: Collection[str]
    how: Callable[[Lie], Mapping[str, Any]] = field(repr=False)
    since: int = 0
    name: str = ""
    poison: Callable[[Data], Data] | None = field(default=None, repr=False)
    trigger: Callable[[Data], Data] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.who, str):
            raise ValueError(f"attack: who are names of nodes, as ({self.who!r},)")
        if self.since < 0:
            raise ValueError(f"attack: since is a round >= 0, got {self.since}")
        if self.since and self.poison is not None:
            raise ValueError(f"attack: {self.title} changes data, which it does from round 0 on, got {self.since}")

    @property
    def title(self) -> str:
        """Return what the attack is called."""
        return self.name or getattr(self.how, "__qualname__", type(self.how).__name__)

    def poisoned(self, view: Any) -> Data:
        """Return the rows that a liar trains on."""
        rows = loaded(view) if callable(view) else view
        if self.poison is None or not isinstance(rows, Data):
            raise ValueError(f"attack: {self.title} changes rows, which a stream does not allow")
        return self.poison(rows)

    def told(self) -> dict[str, Any]:
        """Return the attack as a run folder keeps it."""
        return {"who": sorted(self.who), "how": self.title, "since": self.since}

    def lied(self, node: Node, send: Send, mail: Mail) -> Send:
        """Return what leaves a node instead of an honest message."""
        if node.id not in self.who:
            return send
        past = node.past.setdefault(send.kind.name, {})
        lie = Lie(node, send, mail, past)
        for name, part in send.kind.fields.items():
            if isinstance(part, Weights):
                past[name] = [*past.get(name, []), lie.step(name)][-PAST:]
        if node.round < self.since:
            return send
        kind, changed = send.kind, self.how(lie)
        if strange := sorted(set(changed) - set(kind.fields)):
            raise ValueError(f"attack: {self.title} changes {strange[0]!r}, which {kind.name!r} does not have")
        frozen = {key: kind.fields[key].freeze(value) for key, value in {**send.body, **changed}.items()}
        return Send(kind, send.to, send.round, Body(frozen), send.withheld)


def _alike(one: Any, other: Any) -> bool:
    """Return whether both are named tensors of the same shapes."""
    named = isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys()
    return named and all(one[key].shape == other[key].shape for key in other)
