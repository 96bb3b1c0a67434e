"""What may leave a node: declared kinds of message with typed fields, checked on arrival."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from heterophony import codec

HEADER_LIMIT = 2**20  # of an encoded message: names of tensors, mostly

LINKS = ("parent", "children", "peers", "ancestors", "descendants")
INVERSE = {
    "parent": "children",
    "children": "parent",
    "peers": "peers",
    "ancestors": "descendants",
    "descendants": "ancestors",
}


class Refused(ValueError):
    """A message that does not fit its declaration. It is counted and dropped; the federation goes on."""


@dataclass(frozen=True)
class Shape:
    """What a receiver's door knows of its node: enough to tell a fitting message from one that does not fit."""

    weights: Mapping[str, Mapping[str, tuple[tuple[int, ...], torch.dtype]]] = field(default_factory=dict)
    view: Callable[[str], tuple[int, int | None] | None] = lambda name: None  # rows and classes of a data view
    setting: Callable[[str], Any] = lambda name: None  # a hyper-parameter of the method

    def rows(self, name: str) -> tuple[int, int | None]:
        found = self.view(name)
        if found is None:
            raise Refused(f"the receiver has no data view {name!r}")
        return found


class Field(Protocol):
    """One typed part of a message."""

    def freeze(self, value: Any) -> Any:
        """The sender's value as an immutable copy."""

    def sound(self, value: Any) -> None:
        """Raise `Refused` unless the value is of this type, whoever receives it."""

    def fits(self, value: Any, receiver: Shape) -> None:
        """Raise `Refused` unless the value fits this receiver."""

    def payload(self, value: Any) -> int:
        """Bytes of the value itself, headers not counted."""


@dataclass(frozen=True)
class Weights:
    """Named float tensors: the shared part of a model. `model` names the receiver's model that they must fit."""

    model: str | None = None

    def freeze(self, value: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: _copy(tensor) for name, tensor in value.items()}

    def sound(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise Refused(f"expected named tensors, got a {type(value).__name__}")
        for name, tensor in value.items():
            try:
                _finite(tensor)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        if self.model is None:
            return
        wanted = receiver.weights.get(self.model)
        if wanted is None:
            raise Refused(f"the receiver has no model {self.model!r}")
        if value.keys() != wanted.keys():
            odd = sorted(value.keys() ^ wanted.keys())
            raise Refused(f"names do not match the receiver's {self.model!r}: {', '.join(odd[:3])}")
        for name, tensor in value.items():
            shape, dtype = wanted[name]
            if tuple(tensor.shape) != shape:
                raise Refused(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")
            if tensor.dtype != dtype:
                raise Refused(f"{name} is {tensor.dtype}, expected {dtype}")

    def payload(self, value: dict[str, Tensor]) -> int:
        return sum(tensor.nbytes for tensor in value.values())


@dataclass(frozen=True)
class _Tensor:
    """A tensor whose first dimension may have to match one of the receiver's data views.

    `sample` names a hyper-parameter that says how many rows of the view it has (None or more than there are: all).
    """

    view: str | None = None
    sample: str | None = None
    dimensions: ClassVar[int | None] = None

    def freeze(self, value: Tensor) -> Tensor:
        return _copy(value)

    def sound(self, value: Any) -> None:
        _finite(value)
        if self.dimensions is not None and value.dim() != self.dimensions:
            raise Refused(f"expected {self.dimensions} dimensions, got shape {tuple(value.shape)}")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        if self.view is None:
            return
        rows, classes = receiver.rows(self.view)
        wanted = receiver.setting(self.sample) if self.sample is not None else None
        if wanted is not None:
            rows = min(rows, int(wanted))
        if len(value) != rows:
            raise Refused(f"{len(value)} rows, the receiver expects {rows} of {self.view!r}")
        if classes is not None and value.shape[-1] != classes:
            raise Refused(f"{value.shape[-1]} classes, the receiver's {self.view!r} has {classes}")

    def payload(self, value: Tensor) -> int:
        return value.nbytes


class Logits(_Tensor):
    """Pre-softmax outputs, one row a sample."""

    dimensions = 2


class Probabilities(_Tensor):
    """Softmax outputs, one row a sample."""

    dimensions = 2

    def sound(self, value: Any) -> None:
        super().sound(value)
        if value.numel() and ((value < 0).any() or ((value.sum(-1) - 1).abs() > 1e-2).any()):
            raise Refused("rows are no probabilities")


@dataclass(frozen=True)
class Rows:
    """Row numbers of a data view that sender and receiver both hold."""

    view: str | None = None

    def freeze(self, value: Tensor) -> Tensor:
        return _copy(value)

    def sound(self, value: Any) -> None:
        if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.dim() != 1:
            raise Refused("expected row numbers (a one-dimensional int64 tensor)")
        if value.numel() and int(value.min()) < 0:
            raise Refused("negative row number")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        if self.view is None or not value.numel():
            return
        if int(value.max()) >= receiver.rows(self.view)[0]:
            raise Refused(f"row {int(value.max())} is beyond the receiver's {self.view!r}")

    def payload(self, value: Tensor) -> int:
        return value.nbytes


@dataclass(frozen=True)
class Scalar:
    """One finite number between `low` and `high`."""

    low: float = -math.inf
    high: float = math.inf

    def freeze(self, value: float | Tensor) -> float:
        return float(value)

    def sound(self, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Refused(f"expected a finite number, got {value!r:.40}")
        if not self.low <= value <= self.high:
            raise Refused(f"{value} is outside [{self.low}, {self.high}]")

    def fits(self, value: float, receiver: Shape) -> None:
        pass

    def payload(self, value: float) -> int:
        return 8


class Body(dict[str, Any]):
    """The fields of a message: one immutable object that serves all recipients of a send."""

    __slots__ = ("verdict", "versions")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.verdict: str | None = None  # "" = sound; checked once, however many receive it
        self.versions = self._versions()

    def _versions(self) -> list[int]:
        parts = (part for value in self.values() for part in (value.values() if isinstance(value, dict) else (value,)))
        return [part._version for part in parts if isinstance(part, Tensor)]

    @property
    def intact(self) -> bool:
        """Whether no tensor in it was written to since it was made."""
        return self._versions() == self.versions


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

    def check(self, body: Body, receiver: Shape) -> None:
        """Raise `Refused` unless the body is what this kind declares and fits the receiver."""
        if body.verdict is None:
            body.verdict = self._verdict(body)
        if body.verdict:
            raise Refused(body.verdict)
        for key, part in self.fields.items():
            _refusing(key, part.fits, body[key], receiver)

    def _verdict(self, body: Body) -> str:
        if body.keys() != self.fields.keys():
            return f"carries {sorted(body)}, declared are {sorted(self.fields)}"
        for key, part in self.fields.items():
            try:
                _refusing(key, part.sound, body[key])
            except Refused as error:
                return str(error)
        size = self.payload(body)
        return f"{size} bytes, the limit of {self.name!r} is {self.limit}" if size > self.limit else ""


@dataclass(frozen=True)
class Send:
    """A message on its way out: returned by a reaction, or yielded to leave early."""

    kind: Kind
    to: tuple[str, ...] | None  # None: everyone on the kind's link
    round: int | None  # None: the sender's round
    body: Body


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

    def plain(self) -> dict[str, Any]:
        """The message as a plain value."""
        head = {key: getattr(self, key) for key in ("kind", "sender", "receiver", "round", "id")}
        return {**head, "body": dict(self.body)}

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
            } if 0 <= round < 2**53 and not isinstance(round, bool):
                return cls(kind, sender, receiver, round, (activation, index), Body(body))
        raise Refused("no message header")

    def encode(self) -> bytes:
        return codec.pack(self.plain())

    @property
    def wire(self) -> int:
        """`len(self.encode())`, without encoding."""
        return codec.packed_size(self.plain())

    @classmethod
    def decode(cls, data: bytes, limit: int = 2**30 + HEADER_LIMIT) -> Message:
        """The message in the bytes; raises `Refused` in one line for anything else."""
        try:
            return cls.of(codec.unpack(data, limit, HEADER_LIMIT))
        except codec.Malformed as error:
            raise Refused(str(error)) from None


# What a field may not be called: it could not be read as an attribute, or given as an argument.
RESERVED = {"to", *Message.__dataclass_fields__, *vars(Message)}


def _copy(tensor: Tensor) -> Tensor:
    # Contiguous, as a decoded tensor is: sums depend on the layout.
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _refusing(key: str, check: Callable[..., None], *values: Any) -> None:
    """Run a check; whatever a hostile value makes it raise is a refusal."""
    try:
        check(*values)
    except Exception as error:
        text = str(error) if isinstance(error, Refused) else f"cannot be checked ({type(error).__name__})"
        raise Refused(f"{key}: {text}") from None


def _finite(value: Any) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise Refused("expected a float tensor")
    # A sum is finite only if all its terms are, and far cheaper; if it overflowed, look at each.
    if not math.isfinite(value.sum().item()) and not bool(torch.isfinite(value).all()):
        raise Refused("holds values that are not finite")
