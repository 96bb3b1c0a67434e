"""Weights in few bits: how a kind of message is compressed, and the field that its numbers travel in.

Stochastic rounding to levels is that of QSGD (Alistarh et al., NeurIPS 2017), with the largest number of a block as
its scale. Sending the largest changes, with momentum correction and warm-up, is Deep Gradient Compression (Lin et al.,
ICLR 2018).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heterophony.kernel.fields import LARGEST, NOT_FINITE, TOO_LARGE, Form, Refused, Shape, Weights
from heterophony.kernel.message import INVERSE, Kind
from heterophony.kernel.method import Method
from heterophony.kernel.reaction import Every

WHOLE = 32  # bits: numbers are float32, and not rounded
CODES = {4: torch.uint8, 8: torch.uint8, 16: torch.int16, WHOLE: torch.float32}


@dataclass(frozen=True)
class Compression:
    """How the weights in a kind of message are compressed.

    Arguments:
        bits: of a number: 16, 8 or 4 with stochastic rounding; 32: numbers are not rounded.
        keep: the share of each tensor's numbers that is sent, those with the largest changes.
        delta: what is sent is the difference from what the sender was sent. Changes of weights are differences already.
        feedback: what rounding and leaving out have lost is added to the next message of the same kind.
        momentum: of the differences, as in DGC; with feedback.
        warmup: so many rounds come first that keep more, exponentially less from one to the next, as in DGC.
        block: so many numbers have a scale of their own.
    """

    bits: int = WHOLE
    keep: float = 1.0
    delta: bool = False
    feedback: bool = False
    momentum: float = 0.0
    warmup: int = 0
    block: int = 256

    def __post_init__(self) -> None:
        if self.bits not in CODES:
            raise ValueError(f"compress: bits is {', '.join(map(str, sorted(CODES)))}, got {self.bits}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"compress: keep is a share in (0, 1], got {self.keep}")
        if self.bits == WHOLE and self.keep == 1:
            raise ValueError("compress: nothing gets smaller: set bits to 16, 8 or 4, or keep to a share below one")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"compress: momentum is a number in [0, 1), got {self.momentum}")
        if self.momentum and not self.feedback:
            raise ValueError("compress: momentum goes with feedback = true: it is that of what is left out")
        if self.warmup < 0 or (self.warmup and self.keep == 1):
            raise ValueError(f"compress: warmup is a number of rounds >= 0, and goes with keep, got {self.warmup}")
        if self.block < 1:
            raise ValueError(f"compress: block is at least 1, got {self.block}")

    @property
    def sparse(self) -> bool:
        """Return whether only some numbers are sent, with their positions."""
        return self.keep < 1

    @property
    def of_differences(self) -> bool:
        """Return whether it makes sense of differences only."""
        return self.sparse or self.feedback

    @property
    def levels(self) -> int:
        """Return the largest whole number that a rounded number becomes."""
        return int(2 ** (self.bits - 1)) - 1

    def share(self, round: int) -> float:
        """Return the share of numbers that is sent in a round."""
        return float(self.keep ** (min(round + 1, self.warmup + 1) / (self.warmup + 1)))

    def kept(self, sizes: Collection[int], round: int) -> int:
        """Return how many numbers are sent of tensors of these sizes."""
        return sum(self._kept(size, round) for size in sizes)

    def _kept(self, size: int, round: int) -> int:
        return min(size, math.ceil(self.share(round) * size)) if self.sparse else size

    def payload(self, sizes: Collection[int], round: int = 0) -> int:
        """Return the bytes of tensors of these sizes: codes, a scale for each block, and four a position."""
        count = self.kept(sizes, round)
        scales = 0 if self.bits == WHOLE else 4 * math.ceil(count / self.block)
        return math.ceil(count * self.bits / 8) + scales + (4 * count if self.sparse else 0)

    # -- numbers and codes -----------------------------------------------------------------------------------
    def coded(self, numbers: Tensor, sizes: Collection[int], round: int, draw: torch.Generator) -> dict[str, Tensor]:
        """Return what travels of a vector, which is that of tensors of these sizes one after the other."""
        found: dict[str, Tensor] = {}
        if self.sparse:
            places = self._largest(numbers, sizes, round)
            found["positions"], numbers = places.to(torch.int32), numbers[places]
        if self.bits == WHOLE:
            return {**found, "codes": numbers.clone()}
        scales = _scales(numbers, self.block)
        unit = self.levels / _spread(scales, self.block, len(numbers))
        raised = torch.nan_to_num(numbers * unit, 0.0, 0.0, 0.0)  # of zeros; what is not finite shows in its scale
        whole = (raised + torch.rand(len(raised), generator=draw)).floor().clamp(-self.levels, self.levels)
        return {**found, "codes": _packed(whole.to(torch.int32), self.bits), "scales": scales}

    def decoded(self, value: Mapping[str, Tensor], length: int) -> Tensor:
        """Return the vector that these codes stand for; where nothing was sent, it is zero."""
        codes = value["codes"]
        count = len(value["positions"]) if self.sparse else length
        if self.bits != WHOLE:
            spread = _spread(value["scales"], self.block, count)
            codes = _unpacked(codes, self.bits, count).to(torch.float32) / self.levels * spread
        if not self.sparse:
            return codes
        return torch.zeros(length).index_copy_(0, value["positions"].long(), codes)

    def _largest(self, numbers: Tensor, sizes: Collection[int], round: int) -> Tensor:
        """Return the places of each tensor's largest numbers, in order."""
        found, at = [], 0
        for size in sizes:
            order = numbers[at : at + size].abs().sort(descending=True, stable=True).indices
            found.append(order[: self._kept(size, round)].sort().values + at)
            at += size
        return torch.cat(found)


@dataclass(frozen=True)
class Coded:
    """Weights that travel in few bits. The receiver's door looks at codes; its reactions get weights."""

    whole: Weights
    how: Compression

    def freeze(self, value: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(value)

    def sound(self, value: Any) -> None:
        how, wanted = self.how, {"codes": CODES[self.how.bits]}
        if how.bits != WHOLE:
            wanted["scales"] = torch.float32
        if how.sparse:
            wanted["positions"] = torch.int32
        if not isinstance(value, dict) or value.keys() != wanted.keys():
            raise Refused(f"expected {', '.join(wanted)}")
        for name, dtype in wanted.items():
            part = value[name]
            if not isinstance(part, Tensor) or part.dtype != dtype or part.dim() != 1:
                raise Refused(f"{name}: expected a vector of {dtype}")
        if how.sparse:
            self._check_positions(value["positions"])
        if how.bits == WHOLE:
            _check_numbers("codes", value["codes"])
            return
        _check_numbers("scales", value["scales"])
        if (value["scales"] < 0).any():
            raise Refused("scales: a scale is below zero")
        if len(value["codes"]) and int(_halves(value["codes"], how.bits).abs().max()) > how.levels:
            raise Refused(f"codes: a code is beyond {how.levels}")

    @staticmethod
    def _check_positions(places: Tensor) -> None:
        """Raise `Refused` unless positions rise, so that none comes twice."""
        if len(places) and int(places[0]) < 0:
            raise Refused("positions: one is below zero")
        if len(places) > 1 and not bool((places[1:] > places[:-1]).all()):
            raise Refused("positions: they do not rise, so that one may come twice")

    def fits(self, value: dict[str, Tensor], receiver: Shape) -> None:
        form = self.whole.wanted(receiver)
        if form is None:
            raise Refused(f"the receiver has no model {self.whole.model!r}")
        how, sizes = self.how, sizes_of(form)
        count = sum(sizes)
        if how.sparse:
            places, least, most = value["positions"], how.kept(sizes, how.warmup), how.kept(sizes, 0)
            if not least <= len(places) <= most:
                raise Refused(f"positions: {len(places)} of them, expected {least} to {most}")
            if int(places[-1]) >= count:
                raise Refused(f"positions: {int(places[-1])} is beyond the receiver's {count} numbers")
            count = len(places)
        length = math.ceil(count / 2) if how.bits == 4 else count
        if len(value["codes"]) != length:
            raise Refused(f"codes: {len(value['codes'])} of them, expected {length}")
        if how.bits != WHOLE and len(value["scales"]) != math.ceil(count / how.block):
            raise Refused(f"scales: {len(value['scales'])} of them, expected {math.ceil(count / how.block)}")

    def payload(self, value: Mapping[str, Tensor]) -> int:
        return sum(tensor.nbytes for tensor in value.values())


def sizes_of(form: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> list[int]:
    """Return the sizes of named tensors in the order in which they travel, which is that of their names."""
    return [math.prod(form[name][0]) for name in sorted(form)]


def flattened(value: Mapping[str, Tensor]) -> Tensor:
    """Return named tensors as one vector of float32 on the CPU, in the order in which they travel."""
    return torch.cat([value[name].detach().to("cpu", torch.float32).reshape(-1) for name in sorted(value)])


def restored(numbers: Tensor, form: Form, device: str) -> dict[str, Tensor]:
    """Return the named tensors that a vector stands for."""
    parts = dict(zip(sorted(form), torch.split(numbers.to(device), sizes_of(form)), strict=True))
    return {name: parts[name].view(shape).to(dtype) for name, (shape, dtype) in form.items()}


def coded_kinds(method: Method, compress: Mapping[str, Compression]) -> dict[str, Kind]:
    """Return a method's kinds by name, those of which messages are compressed with the fields that then travel.

    Raise where a kind cannot be compressed.
    """
    kinds = {kind.name: kind for kind in method.kinds}
    for name, how in compress.items():
        if name not in kinds:
            raise ValueError(
                f"compress: {type(method).__name__} has no kind {name!r} that is sent in the open; "
                f"it has {', '.join(kinds)}"
            )
        kinds[name] = _coded(method, kinds[name], how)
    return kinds


def partners(method: Method, kind: Kind) -> dict[str, list[str]]:
    """Return, by field of weights that may go up as a difference, the kinds that bring such weights down."""
    found = {}
    for name, part in kind.fields.items():
        if isinstance(part, Weights) and not part.change:
            found[name] = [k.name for k in method.kinds if k.to == "children" and _is_whole(k.fields.get(name))]
    return found


def _is_whole(part: Any) -> bool:
    """Return whether a field brings the weights of one model as they are. The name of the model may be another."""
    return type(part) is Weights and not part.change


def _coded(method: Method, kind: Kind, how: Compression) -> Kind:
    """Return the kind with fields in few bits. Raise where one of them has to be exact."""
    weights = {name: part for name, part in kind.fields.items() if isinstance(part, Weights)}
    if not weights:
        raise ValueError(f"compress: {kind.name!r} carries no weights, and what it carries has to be exact")
    for name, part in weights.items():
        if type(part) is not Weights or part.model is None:
            raise ValueError(
                f"compress: {name} of {kind.name!r} has to be exact: its receiver's door cannot tell its sizes "
                f"beforehand ({type(part).__name__})"
            )
        if how.of_differences and not (how.delta or part.change):
            raise ValueError(f"compress: keep and feedback are for differences: set delta = true for {kind.name!r}")
    if how.delta:
        _check_delta(method, kind)
    made = {name: Coded(part, how) if isinstance(part, Weights) else part for name, part in kind.fields.items()}
    return Kind(kind.name, to=kind.to, limit=kind.limit, **made)


def _check_delta(method: Method, kind: Kind) -> None:
    """Raise where sender and receiver cannot both know what a difference is from."""
    if INVERSE[kind.to] != "children":
        raise ValueError(f"compress: {kind.name!r} goes to {kind.to}; differences can only go to a parent")
    found = partners(method, kind)
    if not found:
        raise ValueError(f"compress: {kind.name!r} carries changes of weights, which are differences: leave delta out")
    for name, down in found.items():
        if not down:
            raise ValueError(f"compress: no children are sent {name!r}, so that {kind.name!r} can carry no difference")
    for reaction in method.reactions:
        trigger = reaction.trigger
        if kind in trigger.also or (kind in reaction.kinds and not _is_of_a_round(trigger)):
            raise ValueError(
                f"compress: {type(method).__name__} merges {kind.name!r} of several rounds together, so that nobody "
                "knows what a difference is from: leave delta out"
            )


def _is_of_a_round(trigger: Any) -> bool:
    """Return whether mail of one round alone completes a trigger."""
    return isinstance(trigger, Every) and trigger.late == "drop"


def _check_numbers(name: str, value: Tensor) -> None:
    if not len(value):
        return
    largest = float(value.abs().max())
    if not math.isfinite(largest):
        raise Refused(f"{name}: holds values that are {NOT_FINITE}")
    if largest >= LARGEST:
        raise Refused(f"{name}: holds {largest:.3g}, {TOO_LARGE} {LARGEST:g}")


def _scales(numbers: Tensor, block: int) -> Tensor:
    """Return the largest size in each block of numbers."""
    short = -len(numbers) % block
    return torch.nn.functional.pad(numbers.abs(), (0, short)).view(-1, block).amax(1)


def _spread(scales: Tensor, block: int, count: int) -> Tensor:
    """Return for each number the scale of its block."""
    return scales.repeat_interleave(block)[:count]


def _packed(whole: Tensor, bits: int) -> Tensor:
    """Return whole numbers as 16, 8 or 4 bits each; of two in a byte, the first has the lower half."""
    if bits == 16:
        return whole.to(torch.int16)
    raised: Tensor = (whole + 2 ** (bits - 1)).to(torch.uint8)
    if bits == 8:
        return raised
    pairs = torch.nn.functional.pad(raised, (0, len(raised) % 2), value=8).view(-1, 2)
    return torch.bitwise_or(pairs[:, 0], pairs[:, 1] << 4)


def _halves(codes: Tensor, bits: int) -> Tensor:
    """Return the whole numbers in codes, with what may stand behind the last."""
    if bits == 16:
        return codes.to(torch.int32)
    if bits == 8:
        return codes.to(torch.int32) - 128
    return torch.stack([codes & 15, codes >> 4], 1).view(-1).to(torch.int32) - 8


def _unpacked(codes: Tensor, bits: int, count: int) -> Tensor:
    return _halves(codes, bits)[:count]
