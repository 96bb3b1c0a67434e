"""The typed parts of a message, and what each refuses."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from heterophony.base.codec import TensorForm

T = TypeVar("T")
LARGEST = 1e15  # of a float in a tensor: squares of as many as a network has can still be summed in float32
WIDEST = 1e100  # of a number by itself: sums, squares and ratios of some are numbers still
NOT_FINITE = "not finite"  # both in what is said of values that have diverged, and nowhere else
TOO_LARGE = "the limit is"


class Refused(ValueError):
    """A message that does not fit its declaration. It is counted and dropped; the federation goes on."""


class Form(dict[str, tuple[tuple[int, ...], torch.dtype]]):
    """Shapes and dtypes of named tensors. Equal ones are one object (`form_of`)."""

    __slots__ = ("dtype", "lengths", "names", "payload", "tensors")

    def __init__(self, entries: Iterable[tuple[str, tuple[int, ...], torch.dtype]]) -> None:
        super().__init__({name: (shape, dtype) for name, shape, dtype in entries})
        self.names = tuple(self)
        self.tensors: tuple[TensorForm, ...] = tuple((dtype, shape) for shape, dtype in self.values())
        self.lengths = [math.prod(shape) for shape, _ in self.values()]
        self.payload = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.values())
        dtypes = {dtype for dtype, _ in self.tensors}
        self.dtype = dtypes.pop() if len(dtypes) == 1 else None  # where there is one of all

    def __reduce__(self) -> Any:
        return form_from, (tuple((name, shape, dtype) for name, (shape, dtype) in self.items()),)

    def parts(self, whole: Tensor) -> list[Tensor]:
        """Return the named tensors that lie one behind the other in a flat one."""
        parts = torch.split(whole, self.lengths)
        return [part.view(shape) for part, (_, shape) in zip(parts, self.tensors, strict=True)]


def form_of(tensors: Mapping[str, Tensor]) -> Form:
    """Return the shapes and dtypes of these tensors; equal ones are one object."""
    return form_from(tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()))


@lru_cache(maxsize=4096)
def form_from(entries: tuple[tuple[str, tuple[int, ...], torch.dtype], ...]) -> Form:
    """Return the form with these entries: name, shape and dtype of each tensor."""
    return Form(entries)


class Sliceable(NamedTuple):
    """What may travel of the slice that a sender holds of the receiver's model."""

    weights: Form
    statistics: Form  # of BatchNorm


@dataclass(frozen=True)
class Shape:
    """What a receiver's door knows of its node: enough to tell a fitting message from one that does not fit."""

    weights: Mapping[str, Mapping[str, tuple[tuple[int, ...], torch.dtype]]] = field(default_factory=dict)
    view: Callable[[str], tuple[int, int | None] | None] = lambda name: None  # rows and classes of a data view
    setting: Callable[[str], Any] = lambda name: None  # an option of the method
    sent: Callable[[str], Sliceable | None] = lambda model: None  # what the sender has of a model of the receiver

    def rows(self, name: str) -> tuple[int, int | None]:
        """Return the number of rows of a data view, and that of its classes; refuse where there is no such view."""
        found = self.view(name)
        if found is None:
            raise Refused(f"the receiver has no data view {name!r}; a field names a view of its receiver, or none")
        return found


class Copied(dict[str, Tensor]):
    """Named tensors that are parts of one. They are a copy already, so that a message takes them as they are.

    The dictionary is filled when somebody looks into it: mostly the whole is enough.
    """

    __slots__ = ("_parts", "filled", "form", "whole")

    def __init__(self, whole: Tensor, form: Form) -> None:
        self.whole, self.form = whole, form
        self._parts: list[Tensor] | None = None
        self.filled = False

    @property
    def parts(self) -> list[Tensor]:
        """Return the tensors as they were made, in the order of the form."""
        if self._parts is None:
            with torch.no_grad():
                self._parts = self.form.parts(self.whole)
        return self._parts

    @property
    def untouched(self) -> bool:
        """Return whether nobody has put another tensor into it since, not even a piece of one that was there."""
        if not self.filled:
            return True
        return tuple(dict.keys(self)) == self.form.names and all(map(operator.is_, dict.values(self), self.parts))

    @property
    def described(self) -> tuple[tuple[str, ...], tuple[TensorForm, ...]] | None:
        """Return the names and forms of its tensors; None where it is no longer as it was made."""
        return (self.form.names, self.form.tensors) if self.untouched else None

    def fill(self) -> None:
        """Put the parts under their names, where this has not been done."""
        if not self.filled:
            self.filled = True
            dict.update(self, zip(self.form.names, self.parts, strict=True))

    def __reduce__(self) -> Any:
        return (Copied, (self.whole, self.form)) if self.untouched else (dict, (dict(self.items()),))


def _after_filling(name: str) -> Callable[..., Any]:
    """Return a dictionary's own method, for a `Copied` that may not have been filled yet."""
    own = getattr(dict, name)

    def method(self: Copied, *args: Any, **named: Any) -> Any:
        self.fill()
        return own(self, *args, **named)

    method.__name__ = name
    return method


for _name in (
    "__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__", "__or__",
    "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items", "keys", "pop", "popitem",
    "setdefault", "update", "values",
):  # fmt: skip
    setattr(Copied, _name, _after_filling(_name))


def form_in_common(items: Sequence[Mapping[str, Tensor]]) -> Form | None:
    """Return the form of which all items are, each as parts of one tensor; None if some are not."""
    first = items[0] if items else None
    if not isinstance(first, Copied):
        return None
    alike = all(isinstance(item, Copied) and item.form is first.form and item.untouched for item in items)
    return first.form if alike else None


class Field(Protocol):
    """One typed part of a message."""

    def freeze(self, value: Any) -> Any:
        """Return the sender's value as an immutable copy."""

    def sound(self, value: Any) -> None:
        """Raise `Refused` unless the value is of this type, whoever receives it."""

    def fits(self, value: Any, receiver: Shape) -> None:
        """Raise `Refused` unless the value fits this receiver.

        Only names, shapes, dtypes and whole numbers may be looked at: the floats may lie on another machine.
        """

    def payload(self, value: Any) -> int:
        """Return the bytes of the value itself, without headers."""


@runtime_checkable
class Paired(Protocol):
    """A field whose rows another field of the message names, or counts; None: no other."""

    rows: str | None


def _check_form(
    value: Mapping[str, Tensor],
    wanted: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    whose: str,
    model: str | None,
) -> None:
    """Raise `Refused` unless these are tensors of these names, shapes and types."""
    if value.keys() != wanted.keys():
        odd = sorted(value.keys() ^ wanted.keys())
        raise Refused(f"names do not match {whose}{model!r}: {', '.join(odd[:3])}")
    for name, tensor in value.items():
        shape, dtype = wanted[name]
        if tuple(tensor.shape) != shape:
            raise Refused(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")
        if tensor.dtype != dtype:
            raise Refused(f"{name} is {tensor.dtype}, expected {dtype}")


@dataclass(frozen=True)
class Weights:
    """Named float tensors: the shared part of a model. `model` names the receiver's model that they must fit.

    `change` says that they are a change of weights, and not weights.
    """

    model: str | None = None
    change: bool = field(default=False, kw_only=True)

    def freeze(self, value: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # The copies stay where the models are: on one machine, a cohort's weights need not leave the GPU.
        if isinstance(value, Copied) and value.untouched:
            return Copied(value.whole, value.form)
        return {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in value.items()}

    def sound(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise Refused(f"expected named tensors, got a {type(value).__name__}")
        whole = total(value)
        if whole is not None and whole.item() < LARGEST:  # so that all values are
            return
        for name, tensor in value.items():
            try:
                _usable(tensor)
            except Refused as error:
                raise Refused(f"{name}: {error}") from None

    def wanted(self, receiver: Shape) -> Mapping[str, tuple[tuple[int, ...], torch.dtype]] | None:
        """Return names, shapes and dtypes of what this receiver takes; None where it has no such model."""
        return receiver.weights.get(self.model or "")

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        if self.model is None:
            return
        wanted = self.wanted(receiver)
        if wanted is None:
            raise Refused(f"the receiver has no model {self.model!r}")
        if isinstance(value, Copied) and value.form is wanted:
            return
        _check_form(value, wanted, "the receiver's ", self.model)

    def payload(self, value: dict[str, Tensor]) -> int:
        return value.form.payload if isinstance(value, Copied) else sum(tensor.nbytes for tensor in value.values())


@dataclass(frozen=True)
class Sliced(Weights):
    """Weights of the slice that the sender holds of the receiver's model, as its capacity says.

    The door knows who sends. With `statistics`, they are those of BatchNorm in that slice.
    """

    statistics: bool = field(default=False, kw_only=True)

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        found = receiver.sent(self.model or "")
        if found is None:
            raise Refused(f"the receiver does not know which slice of {self.model!r} the sender has")
        wanted = found.statistics if self.statistics else found.weights
        _check_form(value, wanted, "the sender's slice of ", self.model)


@dataclass(frozen=True)
class Adapters(Sliced):
    """Factors of adapters, `NAME.up`, (P, K), and `NAME.down`, (K, Q), of the sender's rank.

    With `stacked`, they may have any rank. Factors whose product may be too large for a message are refused.
    """

    stacked: bool = field(default=False, kw_only=True)

    def sound(self, value: Any) -> None:
        super().sound(value)
        for name, up in value.items():
            layer, _, side = name.rpartition(".")
            down = value.get(f"{layer}.down".lstrip(".")) if side == "up" else None
            if down is None:
                continue
            if not float(up.norm()) * float(down.norm()) < min(LARGEST, torch.finfo(up.dtype).max):
                raise Refused(f"{layer}: the product of its factors may be too large: {TOO_LARGE} {LARGEST:g}")

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        if not self.stacked:
            super().fits(value, receiver)
            return
        wanted = dict(receiver.weights.get(self.model or "", {}))
        ranks: dict[str, int] = {}
        for name, (shape, dtype) in wanted.items():
            layer, _, side = name.rpartition(".")
            free = {"down": 0, "up": 1}.get(side)
            if free is not None and name in value and value[name].dim() == len(shape) == 2:
                rank = value[name].shape[free]
                if ranks.setdefault(layer, rank) != rank:
                    raise Refused(f"{layer}: its factors have ranks {ranks[layer]} and {rank}")
                wanted[name] = ((rank, shape[1]) if free == 0 else (shape[0], rank)), dtype
        _check_form(value, wanted, "the receiver's ", self.model)


@dataclass(frozen=True)
class Part(Weights):
    """Weights of a part of a model. `part` names the option that says which sub-module that is.

    `width` names the option that says in how many groups the features of this linear sub-module are, if in any.
    """

    part: str = ""
    width: str = ""

    def wanted(self, receiver: Shape) -> Mapping[str, tuple[tuple[int, ...], torch.dtype]] | None:
        whole = super().wanted(receiver)
        if whole is None:
            return None
        path = receiver.setting(self.part)
        found = within(whole, path)
        groups = receiver.setting(self.width) if self.width else None
        own = found.get(f"{path}.weight")
        if groups is not None and own is not None:
            shape, dtype = own
            found[f"{path}.weight"] = (shape[0], groups), dtype
        return found


def within(weights: Mapping[str, T], path: str) -> dict[str, T]:
    """Return the weights of a sub-module. The empty path is the whole model."""
    return {name: value for name, value in weights.items() if not path or name.startswith(f"{path}.")}


@dataclass(frozen=True)
class Family(Weights):
    """Weights of several models of one architecture in one message, each name with its model's number before it.

    `many` names the option that says how many there are or, with `fewer`, how many at most.
    """

    many: str = ""
    fewer: bool = False

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        members = members_of(value)
        most = int(receiver.setting(self.many))
        count = min(most, len(members)) if self.fewer else most
        if sorted(members) != list(range(count)):
            up_to = "at most " if self.fewer else ""
            raise Refused(f"models {sorted(members)}, expected {up_to}{most} of them")
        for weights in members.values():
            super().fits(weights, receiver)


def family(members: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join several models' weights to one `Family`."""
    joined: dict[str, Tensor] = {}
    for number, weights in enumerate(members):
        for name, tensor in weights.items():
            joined[f"{number}/{name}"] = tensor
    return joined


def members_of(value: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Return the weights of each model in a `Family`, by its number."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in value.items():
        number, _, name = key.partition("/")
        found.setdefault(int(number), {})[name] = tensor
    return found


@dataclass(frozen=True)
class LowRank(Weights):
    """Weights, or differences of them, some as two factors: `NAME/left`, (P, K), and `NAME/right`, (K, Q).

    A tensor of more than two dimensions counts as a matrix with a row for each index of the first. Factors that are not
    smaller than their product are refused. So are those whose product may have a value too large for a message.
    """

    def sound(self, value: Any) -> None:
        super().sound(value)
        for key, left in value.items():
            name, slash, side = key.rpartition("/")
            if slash and side == "left" and f"{name}/right" in value:
                most = float(left.norm()) * float(value[f"{name}/right"].norm())
                if not most < min(LARGEST, torch.finfo(left.dtype).max):
                    raise Refused(f"{name}: the product of its factors may be too large: {TOO_LARGE} {LARGEST:g}")

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        whole = dict(value)
        for name, (shape, dtype) in receiver.weights.get(self.model or "", {}).items():
            factors = [whole.pop(f"{name}/{side}") for side in ("left", "right") if f"{name}/{side}" in value]
            if not factors:
                continue
            _check_factors(name, factors, shape, dtype)
            if name in value or sum(factor.numel() for factor in factors) >= math.prod(shape):
                raise Refused(f"{name} has {math.prod(shape)} entries, its factors must have fewer and come alone")
            whole[name] = torch.empty(shape, dtype=dtype, device="meta")
        super().fits(whole, receiver)


def _check_factors(name: str, factors: Sequence[Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise `Refused` unless these are the two factors of a tensor of this shape."""
    wanted: list[tuple[int, int]] = []
    if len(shape) > 1:  # nothing else has factors
        rank, rows = len(factors[-1]), shape[0]
        wanted = [(rows, rank), (rank, math.prod(shape) // max(1, rows))]
    got = [tuple(factor.shape) for factor in factors]
    if got != wanted or any(factor.dtype != dtype for factor in factors):
        raise Refused(f"{name} comes in {got}, which are no factors of {shape}")


@dataclass(frozen=True)
class TensorField:
    """A tensor whose first dimension may have to match one of the receiver's data views.

    `sample` names an option that says how many rows of the view it has (None, or more than there are: all). With
    `rows`, the field of that name in the same message says which rows they are, and `sample` is the most.
    """

    view: str | None = None
    sample: str | None = None
    rows: str | None = None
    dimensions: ClassVar[int | None] = None

    def freeze(self, value: Tensor) -> Tensor:
        return _copy(value)

    def sound(self, value: Any) -> None:
        _usable(value)
        if self.dimensions is not None and value.dim() != self.dimensions:
            raise Refused(f"expected {self.dimensions} dimensions, got shape {tuple(value.shape)}")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        if self.view is None:
            return
        rows, classes = receiver.rows(self.view)
        wanted = receiver.setting(self.sample) if self.sample is not None else None
        if wanted is not None:
            rows = min(rows, int(wanted))
        if len(value) > rows or (self.rows is None and len(value) < rows):
            most = "" if self.rows is None else "at most "
            raise Refused(f"{len(value)} rows, the receiver expects {most}{rows} of {self.view!r}")
        if classes is not None and value.shape[-1] != classes:
            raise Refused(f"{value.shape[-1]} classes, the receiver's {self.view!r} has {classes}")

    def payload(self, value: Tensor) -> int:
        return value.nbytes


class Logits(TensorField):
    """Pre-softmax outputs, one row a sample."""

    dimensions = 2


class Probabilities(TensorField):
    """Softmax outputs, one row a sample."""

    dimensions = 2

    def sound(self, value: Any) -> None:
        super().sound(value)
        if value.numel() and ((value < 0).any() or ((value.sum(-1) - 1).abs() > 1e-2).any()):
            raise Refused("rows are no probabilities")


class Features(TensorField):
    """What a part of a network gives for rows, such as features: one row a sample."""

    dimensions = 2


class Labels:
    """Class numbers, one a sample."""

    def freeze(self, value: Tensor) -> Tensor:
        return _copy(value)

    def sound(self, value: Any) -> None:
        if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.dim() != 1:
            raise Refused("expected labels (a one-dimensional int64 tensor)")
        if value.numel() and int(value.min()) < 0:
            raise Refused("negative label")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        pass

    def payload(self, value: Tensor) -> int:
        return value.nbytes


class Packed:
    """Bytes that the method has packed. It checks what they mean where it unpacks them: they may be anything."""

    def freeze(self, value: Tensor) -> Tensor:
        return _copy(value)

    def sound(self, value: Any) -> None:
        if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.dim() != 1:
            raise Refused("expected bytes (a one-dimensional uint8 tensor)")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        pass

    def payload(self, value: Tensor) -> int:
        return value.nbytes


class Words:
    """Whole numbers modulo 2^32 or 2^64, as a vector."""

    def freeze(self, value: Tensor) -> Tensor:
        return _copy(value)

    def sound(self, value: Any) -> None:
        whole = isinstance(value, Tensor) and value.dtype in (torch.int32, torch.int64)
        if not whole or value.dim() != 1:
            raise Refused("expected words (a one-dimensional int32 or int64 tensor)")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        pass

    def payload(self, value: Tensor) -> int:
        return value.nbytes


@dataclass(frozen=True)
class Octets:
    """Bytes for each of some nodes, or from each; `sizes` are the numbers of bytes that one may have."""

    sizes: tuple[int, ...]

    def freeze(self, value: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: _copy(octets) for name, octets in value.items()}

    def sound(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise Refused(f"expected bytes by node, got a {type(value).__name__}")
        for name, octets in value.items():
            whole = isinstance(octets, Tensor) and octets.dtype == torch.uint8 and octets.dim() == 1
            if not isinstance(name, str) or not whole or len(octets) not in self.sizes:
                raise Refused(f"{name!r:.40}: expected {' or '.join(map(str, self.sizes))} bytes")

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        pass

    def payload(self, value: dict[str, Tensor]) -> int:
        return sum(len(octets) for octets in value.values())


@dataclass(frozen=True)
class PerClass(TensorField):
    """Mean vectors, one row a class of the receiver's data view; without rows it says that nothing is known yet.

    `rows` names the field that says of how many examples each is the mean. A class that nobody has is a row of zeros.
    With `soft`, they are means of probabilities.
    """

    soft: bool = False
    dimensions = 2

    def sound(self, value: Any) -> None:
        super().sound(value)
        _single(value)
        if self.soft and value.numel():
            sums = value.sum(-1)
            expected = (sums > 0.5).to(sums)  # one, or zero for a class that nobody has
            if (value < 0).any() or ((sums - expected).abs() > 1e-2).any():
                raise Refused("rows are neither probabilities nor zeros")

    def fits(self, value: Tensor, receiver: Shape) -> None:
        if self.view is None or not len(value):
            return
        _, classes = receiver.rows(self.view)
        if classes is not None and len(value) != classes:
            raise Refused(f"{len(value)} classes, the receiver's {self.view!r} has {classes}")


class Counts(TensorField):
    """How many examples there are of each class."""

    dimensions = 1

    def sound(self, value: Any) -> None:
        super().sound(value)
        _single(value)
        if ((value < 0) | (value > 2**53)).any():
            raise Refused("holds numbers that are no counts")


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
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refused(f"expected a finite number, got {value!r:.40}")
        if not math.isfinite(value):
            raise Refused(f"expected a finite number, got {value!r:.40}, which is {NOT_FINITE}")
        if abs(value) >= (2**53 if isinstance(value, int) else WIDEST):  # sums of such need not be numbers
            raise Refused(f"expected a number that a float holds, got {value!r:.40}")
        if not self.low <= value <= self.high:
            raise Refused(f"{value} is outside [{self.low}, {self.high}]")

    def fits(self, value: float, receiver: Shape) -> None:
        pass

    def payload(self, value: float) -> int:
        return 8


def _single(value: Tensor) -> None:
    """Raise `Refused` unless it is float32: a mean of wider numbers need not be one that float32 holds."""
    if value.dtype != torch.float32:
        raise Refused(f"expected float32, got {value.dtype}")


def _copy(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU, contiguous, as a decoded one is: sums depend on device and layout."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _usable(value: Any) -> None:
    """Raise `Refused` unless these are numbers that a receiver can compute with: finite, and not huge."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise Refused("expected a float tensor")
    if not value.numel():
        return
    low, high = (end.item() for end in value.detach().aminmax())
    if not math.isfinite(low) or not math.isfinite(high):  # both are NaN if any value is
        raise Refused(f"holds values that are {NOT_FINITE}")
    largest = low if -low > high else high
    if abs(largest) >= LARGEST:
        raise Refused(f"holds {largest:.3g}, {TOO_LARGE} {LARGEST:g}")


def total(value: Mapping[str, Tensor]) -> Tensor | None:
    """Return one number, where the tensors are, that is below `LARGEST` only if all values are.

    It is a sum of squares, or of absolute values. Where it is not below, each tensor has to be looked at. None: the
    number would cost too much.
    """
    if isinstance(value, Copied):
        return _squares(value.whole)
    tensors = list(value.values())
    if not tensors or not all(isinstance(t, Tensor) and t.is_floating_point() for t in tensors):
        return None
    whole = tensors[0]._base
    if whole is not None and all(t._base is whole for t in tensors):
        return _squares(whole)
    if not all(t.is_cuda and t.dtype == torch.float32 for t in tensors):
        return None
    return torch.stack(torch._foreach_norm(tensors, 1)).sum()


def _squares(whole: Tensor) -> Tensor | None:
    """Return the sum of squares, or None where a tensor would have to be copied for it."""
    if not whole.is_floating_point() or not whole.is_contiguous():
        return None
    flat = whole.detach().view(-1)
    return flat.dot(flat)
