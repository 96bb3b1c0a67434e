"""What may leave a node: declared kinds of message, checked on arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heterophony.base import codec
from heterophony.kernel.fields import LARGEST, Copied, Field, Refused, Shape, Weights, total

HEADER_LIMIT = 2**20  # of an encoded message: names of tensors, mostly

LINKS = ("parent", "children", "peers", "ancestors", "descendants")
INVERSE = {
    "parent": "children",
    "children": "parent",
    "peers": "peers",
    "ancestors": "descendants",
    "descendants": "ancestors",
}


class Body(dict[str, Any]):
    """The fields of a message: one immutable object that serves all recipients of a send."""

    __slots__ = ("usable", "verdict", "versions")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.verdict: str | None = None  # "" = sound; checked once, however many receive it
        self.usable = False  # whether its weights are known to be sound: asked together with those of others
        self.versions = self._versions()

    def _versions(self) -> list[int]:
        found: list[int] = []
        for value in self.values():
            if isinstance(value, Copied):
                found += [value.whole._version, value.untouched]  # its parts count with it
            elif isinstance(value, dict):
                found += [part._version for part in value.values() if isinstance(part, Tensor)]
            elif isinstance(value, Tensor):
                found.append(value._version)
        return found

    @property
    def intact(self) -> bool:
        """Whether no tensor in it was written to since it was made."""
        return self._versions() == self.versions

    def whole(self) -> dict[str, Any]:
        """The fields themselves; a body whose bytes are on another machine brings them here."""
        return dict(self)


@dataclass(frozen=True, eq=False)
class Kind:
    """A declared kind of message: its name, the link it travels on (seen from its sender) and its fields.

    `UPDATE = Kind("update", to="parent", weights=Weights, examples=Scalar)`, then
    `UPDATE(weights=..., examples=...)` goes to the node's parent; a first argument restricts who gets it.
    """

    name: str
    to: str
    fields: Mapping[str, Field]
    limit: int

    def __init__(self, name: str, *, to: str, limit: int = 2**30, **fields: Field | type[Field] | type[Any]) -> None:
        if to not in LINKS:
            raise ValueError(f"kind {name!r} goes to {to!r}; a link is one of {', '.join(LINKS)}")
        if not isinstance(limit, int):
            raise ValueError(f"kind {name!r}: limit is a number of bytes; a field cannot be called so")
        if taken := fields.keys() & RESERVED:
            raise ValueError(f"kind {name!r}: a field cannot be called {', '.join(sorted(taken))}")
        made = {key: f() if isinstance(f, type) else f for key, f in fields.items()}
        for key, field in made.items():
            if (other := getattr(field, "rows", None)) is not None and other not in made:
                raise ValueError(f"kind {name!r}: {key} are of the rows in {other!r}, which is no field")
        for attribute, value in (("name", name), ("to", to), ("fields", made), ("limit", limit)):
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        return f"Kind({self.name!r}, to={self.to!r}, fields={list(self.fields)})"

    def __call__(self, to: str | Iterable[str] | None = None, *, round: int | None = None, **body: Any) -> Send:
        if body.keys() != self.fields.keys():
            raise TypeError(f"message {self.name!r} carries {sorted(self.fields)}, got {sorted(body)}")
        frozen = Body({key: self.fields[key].freeze(value) for key, value in body.items()})
        chosen = None if to is None else (to,) if isinstance(to, str) else tuple(dict.fromkeys(to))
        return Send(self, chosen, round, frozen)

    def payload(self, body: Mapping[str, Any]) -> int:
        """Bytes of the values themselves, headers not counted."""
        return sum(part.payload(body[key]) for key, part in self.fields.items())

    def check(self, body: Body, receiver: Shape | None) -> None:
        """Raise `Refused` unless the body is what this kind declares, and fits the receiver if that is known here."""
        if verdict := self.verdict(body):
            raise Refused(verdict)
        if receiver is not None:
            for key, part in self.fields.items():
                _refusing(key, part.fits, body[key], receiver)

    def verdict(self, body: Body) -> str:
        """What is wrong with a body, whoever receives it; empty if nothing is."""
        if body.verdict is None:
            body.verdict = self._verdict(body)
        return body.verdict

    def _verdict(self, body: Body) -> str:
        if body.keys() != self.fields.keys():
            return f"carries {sorted(body)}, declared are {sorted(self.fields)}"
        for key, part in self.fields.items():
            if body.usable and type(part).sound is Weights.sound:
                continue
            try:
                _refusing(key, part.sound, body[key])
            except Refused as error:
                return str(error)
        for key, part in self.fields.items():
            if (other := getattr(part, "rows", None)) is not None and len(body[key]) != len(body[other]):
                return f"{key}: {len(body[key])} rows, but {other} names {len(body[other])}"
        size = self.payload(body)
        return f"{size} bytes, the limit of {self.name!r} is {self.limit}" if size > self.limit else ""


def ask_together(mail: Iterable[tuple[Kind, Body]]) -> None:
    """Ask a GPU once whether the weights in many messages are sound: a question waits for all that it has to do."""
    asked: dict[int, tuple[Body, Tensor]] = {}
    for kind, body in mail:
        weights = [body.get(key) for key, part in kind.fields.items() if isinstance(part, Weights)]
        if body.verdict is not None or len(weights) != 1 or id(body) in asked or not isinstance(weights[0], dict):
            continue
        if (number := total(weights[0])) is not None:
            asked[id(body)] = body, number
    if len(asked) > 1:
        device = next(iter(asked.values()))[1].device  # what comes from a snapshot may still be on the CPU
        found = torch.stack([number.to(device, torch.float32) for _, number in asked.values()]).tolist()
        for (body, _), known in zip(asked.values(), found, strict=True):
            body.usable = known < LARGEST  # if not, it is looked at alone


@dataclass(frozen=True)
class Send:
    """A message on its way out: returned by a reaction, or yielded to leave early."""

    kind: Kind
    to: tuple[str, ...] | None  # None: everyone on the kind's link
    round: int | None  # None: the sender's round
    body: Body
    withheld: bool = False  # it stayed with its sender, on another machine: there is no body


@dataclass(frozen=True)
class Message:
    """A message as its receiver sees it; fields read as attributes: `mail.weights`, `mail.sender`.

    `id` is (sender's activation, position in it). `staleness` is how many rounds ago, by the receiver's count,
    it was sent. `also` holds mail that the trigger swept along.
    """

    kind: str
    sender: str
    receiver: str
    round: int
    id: tuple[int, int]
    body: Body
    staleness: int = 0
    also: tuple[Message, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "body":  # asked for while the object is being copied
            raise AttributeError(name)
        try:
            return self.body[name]
        except KeyError:
            raise AttributeError(f"message {self.kind!r} has no field {name!r}") from None

    @property
    def header(self) -> dict[str, Any]:
        """All but the body."""
        return {
            "kind": self.kind,
            "sender": self.sender,
            "receiver": self.receiver,
            "round": self.round,
            "id": self.id,
        }

    def plain(self) -> dict[str, Any]:
        """The message as a plain value."""
        return {**self.header, "body": self.body.whole()}

    @classmethod
    def of(cls, value: Any) -> Message:
        """The message whose plain value this is; raises `Refused` if it is no message."""
        match value:
            case {
                "kind": str(kind),
                "sender": str(sender),
                "receiver": str(receiver),
                "round": int(round),
                "id": (int(activation), int(index)),
                "body": dict(body),
            } if whole(round):
                return cls(kind, sender, receiver, round, (activation, index), Body(body))
        raise Refused("no message header")

    def encode(self) -> bytes:
        return codec.pack(self.plain())

    @property
    def wire(self) -> int:
        """`len(self.encode())`, without encoding."""
        return codec.packed_size({**self.header, "body": dict(self.body)})

    @classmethod
    def decode(cls, data: bytes, limit: int = 2**30 + HEADER_LIMIT) -> Message:
        """The message in the bytes; raises `Refused` in one line for anything else."""
        try:
            return cls.of(codec.unpack(data, limit, HEADER_LIMIT))
        except codec.Malformed as error:
            raise Refused(str(error)) from None


def whole(value: Any) -> bool:
    """Say whether this is a number of rounds or rows, of a size that every reader of our files can take."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


# What a field may not be called: it could not be read as an attribute, or given as an argument.
RESERVED = {"to", *Message.__dataclass_fields__, *vars(Message)}


def _refusing(key: str, check: Callable[..., None], *values: Any) -> None:
    """Run a check; whatever a hostile value makes it raise is a refusal."""
    try:
        check(*values)
    except Exception as error:
        text = str(error) if isinstance(error, Refused) else f"cannot be checked ({type(error).__name__})"
        raise Refused(f"{key}: {text}") from None
