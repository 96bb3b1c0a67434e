"""What a loss gives, in one form: terms by the name of their model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def named_terms(given: Any, model: str) -> dict[str, dict[str, Tensor]]:
    """Return what a loss gave as named terms of each model. A single tensor is the loss of `model`."""
    if isinstance(given, Tensor):
        return {model: {"loss": given}}
    return {name: {"loss": value} if isinstance(value, Tensor) else dict(value) for name, value in given.items()}


def sum_of(terms: Mapping[str, Mapping[str, Tensor]]) -> Tensor:
    """Return the sum of the terms of all models, in the order given. There is at least one."""
    first, *others = [value for named in terms.values() for value in named.values()]
    return sum(others, start=first)
