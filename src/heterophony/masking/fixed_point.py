"""Messages as whole numbers that can be added, and sums as messages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heterophony.kernel.fields import Refused
from heterophony.kernel.message import Body
from heterophony.kernel.sum import Sum
from heterophony.masking.options import Secure

Numbers = npt.NDArray[np.unsignedinteger[npt.NBitBase]]


class Encoded(NamedTuple):
    """A message as whole numbers, and how many of its values were beyond the range."""

    numbers: Numbers
    beyond: int


def form_of(rule: Sum, body: Mapping[str, Any]) -> bytes:
    """Return names, shapes and types of all that is summed. Only messages of one form can be added."""
    means = []
    for name in rule.means:
        value = body[name]
        tensors = value.items() if isinstance(value, dict) else [(None, value)]
        means.append([name, [[key, list(t.shape), str(t.dtype).removeprefix("torch.")] for key, t in tensors]])
    by = None if rule.by is None else body[rule.by]
    return json.dumps([means, list(by.shape) if isinstance(by, Tensor) else None], separators=(",", ":")).encode()


def size_of(form: bytes) -> int:
    """Return how many numbers a message of this form is."""
    means, by = json.loads(form)
    size: int = sum(math.prod(shape) for _, tensors in means for _, shape, _ in tensors) + math.prod(by or [])
    return size


def encoded(rule: Sum, how: Secure, body: Mapping[str, Any], members: int) -> Encoded:
    """Return the message's values, times what it counts and in steps of the scale, then the counts themselves."""
    count = torch.ones((), dtype=torch.float64)
    if rule.by is not None:
        count = torch.as_tensor(body[rule.by], dtype=torch.float64, device="cpu")
        _check_counts(rule.by, count, how.most)
    weight = count if rule.weighted else torch.ones_like(count)
    scale, beyond, parts = how.scale(members, rule.weighted), 0, []
    for name in rule.means:
        value = body[name]
        for tensor in value.values() if isinstance(value, dict) else (value,):
            wide = tensor.detach().to("cpu", torch.float64)
            beyond += int((wide.abs() > how.range).sum())
            parts.append((wide.clamp(-how.range, how.range) * _beside(weight, wide) * scale).round().flatten())
    whole = torch.cat([*parts, count.flatten()]).to(torch.int64).numpy()
    width = how.bits // 8
    return Encoded(whole.astype(f"<i{width}").view(f"<u{width}"), beyond)


def _check_counts(name: str, count: Tensor, most: int) -> None:
    if not count.numel():
        return
    low, high = float(count.min()), float(count.max())
    if low < 0 or high > most or bool((count != count.round()).any()):
        odd = high if high > most else low
        raise Refused(f"{name} is {odd:g}, and a secure sum takes whole numbers from 0 to secure.most = {most}")


def _beside(weight: Tensor, value: Tensor) -> Tensor:
    """Return the weights so that they multiply values: one for all, or one for each row."""
    return weight.reshape(*weight.shape, *[1] * (value.dim() - weight.dim())) if weight.dim() else weight


def decoded(rule: Sum, how: Secure, total: Numbers, form: bytes, members: int, summed: int) -> Body:
    """Return the message that stands for all: means of so many, and the sum of their counts."""
    means, by = json.loads(form)
    signed = torch.from_numpy(total.view(f"<i{how.bits // 8}").astype(np.int64))
    size, start, scale = size_of(form), 0, how.scale(members, rule.weighted)
    counts = signed[size - math.prod(by or []) :].double().reshape(by or [])
    weight = counts if rule.weighted and rule.by is not None else torch.full_like(counts, summed)
    weight = torch.where(weight > 0, weight, 1.0)
    found: dict[str, Any] = {}
    for name, tensors in means:
        made = {}
        for key, shape, dtype in tensors:
            flat = signed[start : start + math.prod(shape)].double().reshape(shape)
            start += math.prod(shape)
            kind = getattr(torch, dtype)
            made[key] = (flat / scale / _beside(weight, flat)).to(kind if kind.itemsize >= 4 else torch.float32)
        found[name] = made.pop(None) if None in made else made
    if rule.by is not None:
        found[rule.by] = counts.float() if by is not None else float(counts)
    return Body(found)
