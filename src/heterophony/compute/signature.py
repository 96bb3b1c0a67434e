"""Compares pieces of work: where two have one signature, what was prepared for one serves the other.

A signature is hashable. `Unknown` is raised for what cannot be compared by value: such work runs one at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from operator import is_, itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

# What a module keeps beside its settings: its tensors, sub-modules, hooks, and the mode that `Fit` sets anyway.
_MACHINERY = frozenset(nn.Module().__dict__)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Unknown(TypeError):
    """Raised for something that cannot be compared by value; the text names it."""


def of_module(module: nn.Module) -> Hashable:
    """Return a module's classes, settings, names and shapes.

    Two modules of one signature compute the same from the same weights.
    """
    parts = []
    for name, part in module.named_modules():
        if any(part.__dict__[hooks] for hooks in _HOOKS):
            raise Unknown(f"{name or type(part).__name__} has hooks")
        settings = sorted(key for key in part.__dict__ if key not in _MACHINERY)
        parts.append((name, type(part), tuple((key, of_value(part.__dict__[key])) for key in settings)))
    for name, parameter in module.named_parameters():
        if _watched(parameter):
            raise Unknown(f"{name} has hooks")
    parameters = tuple((n, p.shape, p.dtype, p.requires_grad) for n, p in module.named_parameters())
    buffers = tuple((n, b.shape, b.dtype) for n, b in module.named_buffers())
    return tuple(parts), parameters, buffers


class LastSeen:
    """What was seen of a module without hooks. It is cheap to tell whether the module has changed since."""

    def __init__(self, module: nn.Module) -> None:
        self.parts = [part.__dict__ for part in module.modules()]
        self.children = [part["_modules"] for part in self.parts]
        self.hooks = [part[hooks] for part in self.parts for hooks in _HOOKS]
        settings = [(part, [key for key in part if key not in _MACHINERY]) for part in self.parts]
        # every round asks this of every participant: what can be is done by loops of C; one key twice is a tuple too
        self.settings = [(part, itemgetter(*keys, keys[0])) for part, keys in settings if keys]
        self.values = self._values()
        self.parameters = list(module.parameters())
        self.seen = self._see()

    @property
    def same(self) -> bool:
        """Tell whether the module is still as it was."""
        if any(self.hooks) or self._see() != self.seen:
            return False
        try:
            return all(map(is_, self._values(), self.values))
        except KeyError:  # one was taken away, and another came
            return False

    def _values(self) -> list[Any]:
        return [value for part, own in self.settings for value in own(part)]

    def _see(self) -> list[Any]:
        inside = [*chain.from_iterable(map(dict.values, self.children))]
        watchers = [p._backward_hooks or p._post_accumulate_grad_hooks for p in self.parameters]
        return [*map(len, self.parts), inside, [p.requires_grad for p in self.parameters], any(watchers)]


def of_function(function: Any, loose: bool = False) -> Hashable:
    """Return a function's code and what it has closed over.

    `loose` leaves out the numbers of a `partial` (see `numbers`).
    """
    match function:
        case partial():
            rest = {}
            for name, value in function.keywords.items():
                rest[name] = None if loose and _number(value) else of_value(value)
            return "partial", of_function(function.func), of_value(function.args), tuple(sorted(rest.items()))
        case MethodType():
            return function.__func__, of_value(function.__self__)
        case FunctionType():
            cells = tuple(of_value(cell.cell_contents) for cell in function.__closure__ or ())
            return function.__code__, cells, of_value(function.__defaults__), of_value(function.__kwdefaults__ or {})
    return of_value(function)


def numbers(function: Any) -> dict[str, float]:
    """Return the numbers that a `partial` passes by name. They may change from round to round within one program."""
    if not isinstance(function, partial):
        return {}
    return {key: float(value) for key, value in function.keywords.items() if _number(value)}


def with_numbers(function: Any, values: Mapping[str, Tensor]) -> Any:
    """Return the same function with tensors in place of its numbers."""
    return partial(function, **values) if values else function


def of_value(value: Any) -> Hashable:
    """Return a setting as something that is compared by value. Its type must say what equality means."""
    match value:
        case None | bool() | int() | float() | str() | bytes() | torch.dtype() | torch.device() | type():
            return value
        case list() | tuple() | torch.Size():
            return type(value).__name__, tuple(of_value(item) for item in value)
        case dict() | Mapping():
            return "dict", tuple((key, of_value(item)) for key, item in value.items())
        case set() | frozenset():
            return "set", frozenset(of_value(item) for item in value)
        case Tensor():
            raise Unknown("a tensor that is not given as data, extra or aux")
        case partial() | MethodType() | FunctionType():
            return of_function(value)
    if is_dataclass(value) and getattr(type(value), "__dataclass_params__").frozen:  # noqa: B009
        return type(value), tuple((field.name, of_value(getattr(value, field.name))) for field in fields(value))
    if isinstance(value, BuiltinFunctionType):  # torch's own operations
        return value
    raise Unknown(f"a {type(value).__qualname__}")


def _number(value: Any) -> bool:
    return isinstance(value, float)  # a whole number may be a count, which no tensor can stand in for


def _watched(parameter: Tensor) -> bool:
    """Tell whether somebody is told of a parameter's gradient."""
    return bool(parameter._backward_hooks) or bool(getattr(parameter, "_post_accumulate_grad_hooks", None))
