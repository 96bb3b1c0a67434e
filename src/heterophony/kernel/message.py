"""What may leave a node: declared kinds of message, checked on arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heterophony.base import codec
from heterophony.kernel.fields import LARGEST, TOO_LARGE, Copied, Counts, Field, Paired, Refused, Shape, Weights, total

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

    __slots__ = ("_size", "usable", "verdict", "versions")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.verdict: str | None = None  # "" = sound; checked once, however many receive it
        self.usable = False  # whether its weights are known to be sound; `ask_together` asks for many at once
        self.versions = self._versions()
        self._size: int | None = None

    @property
    def size(self) -> int:
        """Return how many bytes it adds to an encoded message, however many receive it."""
        if self._size is None:
            self._size = codec.packed_size(self) - _EMPTY
        return self._size

    def _versions(self) -> list[int]:
        """Return how often each tensor has been written to."""
        found: list[int] = []
        for value in self.values():
            if type(value) is float:
                continue
            if isinstance(value, Copied):
                found += [value.whole._version, value.untouched]  # writing to a part counts for the whole
            elif isinstance(value, dict):
                found += [part._version for part in value.values() if isinstance(part, Tensor)]
            elif isinstance(value, Tensor):
                found.append(value._version)
        return found

    @property
    def intact(self) -> bool:
        """Return whether no tensor in it has been written to since it was made."""
        return self._versions() == self.versions

    def whole(self) -> dict[str, Any]:
        """Return the fields themselves. A body whose bytes are on another machine brings them here."""
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
    pairs: Mapping[str, str]  # by field, the other field that names its rows
    weights: tuple[str, ...]  # the fields that are such

    def __init__(self, name: str, *, to: str, limit: int = 2**30, **fields: Field | type[Field] | type[Any]) -> None:
        if to not in LINKS:
            raise ValueError(f"kind {name!r} goes to {to!r}; a link is one of {', '.join(LINKS)}")
        if not isinstance(limit, int):
            raise ValueError(f"kind {name!r}: `limit` is a number of bytes, so no field can be called `limit`")
        if taken := fields.keys() & RESERVED:
            raise ValueError(f"kind {name!r}: a field cannot be called {', '.join(sorted(taken))}")
        made = {key: field() if isinstance(field, type) else field for key, field in fields.items()}
        pairs = {key: field.rows for key, field in made.items() if isinstance(field, Paired) and field.rows is not None}
        for key, other in pairs.items():
            if other not in made:
                raise ValueError(
                    f"kind {name!r}: {key} says that the field {other!r} names its rows, but there is no such field"
                )
        weights = tuple(key for key, field in made.items() if isinstance(field, Weights))
        own = {"name": name, "to": to, "fields": made, "limit": limit, "pairs": pairs, "weights": weights}
        for attribute, value in own.items():
            object.__setattr__(self, attribute, value)

    def __repr__(self) -> str:
        return f"Kind({self.name!r}, to={self.to!r}, fields={list(self.fields)})"

    def __call__(self, to: str | Iterable[str] | None = None, *, round: int | None = None, **body: Any) -> Send:
        """Make a message on its way out: to all on the kind's link, or to those named in `to`."""
        if body.keys() != self.fields.keys():
            raise TypeError(f"message {self.name!r} carries {sorted(self.fields)}, got {sorted(body)}")
        frozen = Body({key: self.fields[key].freeze(value) for key, value in body.items()})
        return Send(self, _recipients(to), round, frozen)

    def absent(self, to: str | Iterable[str] | None = None, *, round: int | None = None) -> Send:
        """Return the answer "I am absent": whoever waits for a message of this kind hears that there is none."""
        return Send(self, _recipients(to), round, Body({}), withheld=True)

    def payload(self, body: Mapping[str, Any]) -> int:
        """Return the bytes of the values themselves, without headers."""
        return sum([part.payload(body[key]) for key, part in self.fields.items()])

    def check(self, body: Body, receiver: Shape | None, bound: float | None = None) -> None:
        """Raise `Refused` unless the body is what this kind declares, and fits the receiver if that is known here.

        With a bound, no float in its tensors may be larger.
        """
        if verdict := self.verdict(body, bound):
            raise Refused(verdict)
        if receiver is None:
            return
        key = ""
        try:
            for key, part in self.fields.items():
                part.fits(body[key], receiver)
        except Exception as error:
            raise Refused(_reason(key, error)) from None

    def verdict(self, body: Body, bound: float | None = None) -> str:
        """Return what is wrong with a body, whoever receives it; empty if nothing is. It is found out once."""
        if body.verdict is None:
            body.verdict = self._verdict(body) or ("" if bound is None else self._beyond(body, bound))
        return body.verdict

    def _beyond(self, body: Body, bound: float) -> str:
        """Return which field holds a float beyond the federation's bound; empty if none does. Counts do not count."""
        for key, part in self.fields.items():
            value = body[key]
            tensors = [] if isinstance(part, Counts) else list(value.values()) if isinstance(value, dict) else [value]
            for tensor in tensors:
                if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.numel():
                    largest = float(tensor.detach().abs().max())
                    if largest > bound:
                        return f"{key}: holds {largest:.3g}, {TOO_LARGE} {bound:g} here"
        return ""

    def _verdict(self, body: Body) -> str:
        """Look at the fields, then at the rows that belong together, then at the size."""
        if body.keys() != self.fields.keys():
            return f"carries {sorted(body)}, but its kind declares {sorted(self.fields)}"
        for key, part in self.fields.items():
            if body.usable and type(part).sound is Weights.sound:  # known already
                continue
            try:
                part.sound(body[key])
            except Exception as error:
                return _reason(key, error)
        for key, other in self.pairs.items():
            if len(body[key]) != len(body[other]):
                return f"{key}: {len(body[key])} rows, but {other} names {len(body[other])}"
        size = self.payload(body)
        if size > self.limit:
            return f"{size} bytes, the limit of {self.name!r} is {self.limit}"
        return ""


def _recipients(to: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return those whom a send is for, each once; None is everyone on the kind's link."""
    if to is None:
        return None
    if isinstance(to, str):
        return (to,)
    return tuple(dict.fromkeys(to))


def ask_together(mail: Iterable[tuple[Kind, Body]]) -> None:
    """Find out at once whether the weights in many messages are sound.

    Each question to a GPU waits until it has done all its work, so that one question is better than many.
    """
    flat: list[tuple[Body, Tensor]] = []  # those whose weights are one tensor each
    asked: list[tuple[Body, Tensor]] = []  # with a number that tells whether the weights are sound
    for body, weights in _open_questions(mail):
        if isinstance(weights, Copied) and weights.untouched and weights.whole.is_floating_point():
            flat.append((body, weights.whole))
        elif (number := total(weights)) is not None:
            asked.append((body, number))
    if len(asked) + len(flat) < 2:
        return
    if flat:  # one launch for all
        sums = torch._foreach_norm([whole for _, whole in flat], 1)
        asked += [(body, number) for (body, _), number in zip(flat, sums, strict=True)]
    device = asked[0][1].device  # a number from a snapshot may still be on the CPU
    found = torch.stack([number.to(device, torch.float32) for _, number in asked]).tolist()
    for (body, _), known in zip(asked, found, strict=True):
        body.usable = known < LARGEST  # if not, it is looked at alone


def _open_questions(mail: Iterable[tuple[Kind, Body]]) -> Iterator[tuple[Body, dict[str, Any]]]:
    """Yield each body with one field of weights that nobody has looked at yet, once."""
    seen: set[int] = set()
    for kind, body in mail:
        if body.verdict is None and id(body) not in seen:
            weights = [body.get(key) for key in kind.weights]
            if len(weights) == 1 and isinstance(weights[0], dict):
                seen.add(id(body))
                yield body, weights[0]


@dataclass(frozen=True)
class Send:
    """A message on its way out: returned by a reaction, or yielded to leave early."""

    kind: Kind
    to: tuple[str, ...] | None  # None: everyone on the kind's link
    round: int | None  # None: the sender's round
    body: Body
    withheld: bool = False  # the answer "absent": it stayed with its sender, and there is no body


@dataclass(frozen=True)
class Message:
    """A message as its receiver sees it. Its fields are attributes: `mail.weights`, `mail.sender`.

    `id` is (sender's activation, position in it). `staleness` is how many rounds ago it was sent, by the receiver's
    count. `also` holds mail that the trigger swept along.
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
        """Return all but the body."""
        return {
            "kind": self.kind,
            "sender": self.sender,
            "receiver": self.receiver,
            "round": self.round,
            "id": self.id,
        }

    def plain(self) -> dict[str, Any]:
        """Return the message as a plain value."""
        return {**self.header, "body": self.body.whole()}

    @classmethod
    def of(cls, value: Any) -> Message:
        """Return the message whose plain value this is. Raise `Refused` if it is no message."""
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
        """Return the bytes that travel."""
        return codec.pack(self.plain())

    @property
    def wire(self) -> int:
        """Return `len(self.encode())` without encoding."""
        texts = map(codec.text_size, (self.kind, self.sender, self.receiver))
        digits = [len(str(number)) for number in (self.round, *self.id)]
        return _BARE + sum(texts) + sum(digits) + self.body.size

    @classmethod
    def decode(cls, data: bytes, limit: int = 2**30 + HEADER_LIMIT) -> Message:
        """Return the message in these bytes. Raise `Refused` in one line for anything else."""
        try:
            return cls.of(codec.unpack(data, limit, HEADER_LIMIT))
        except codec.Malformed as error:
            raise Refused(str(error)) from None


# Bytes of a message without its texts, numbers and fields.
_EMPTY = codec.packed_size({})
_BARE = codec.packed_size({**Message("", "", "", 0, (0, 0), Body({})).header, "body": {}})
_BARE -= 3 * codec.text_size("") + 3 * len("0")


def whole(value: Any) -> bool:
    """Return whether this is a number of rounds or rows, of a size that every reader of our files can take."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


# What a field may not be called: it could not be read as an attribute, or given as an argument.
RESERVED = {"to", *Message.__dataclass_fields__, *vars(Message)}


def _reason(key: str, error: Exception) -> str:
    """Return why a field is refused. Whatever a hostile value makes a check raise is a reason."""
    text = str(error) if isinstance(error, Refused) else f"cannot be checked ({type(error).__name__})"
    return f"{key}: {text}"
