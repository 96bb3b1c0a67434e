"""What must be equal for a run to be resumed, in plain values. It stands in the run folder's `spec.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from heterophony.kernel.method import Method
from heterophony.kernel.networks import Models, model_of
from heterophony.tasks.task import described

if TYPE_CHECKING:
    from heterophony.federation.federation import Federation


def identity_of(federation: Federation) -> dict[str, Any]:
    """Return everything that makes a run what it is and that is not a module or a tensor."""
    return {
        "method": type(federation.method).__name__,
        "settings": options_of(federation.method),
        "nodes": dict(federation.topology.roles),
        "links": federation.topology.digest,
        "models": {owner: _starts(models) for owner, models in federation.models.items()},
        "tests": [[name, split, len(data)] for name, split, data in federation.domain_tests],
        "seed": federation.seed,
        **federation.compute.deciding(),
        "evaluate": federation.evaluate,
        "profiles": {key: readable(asdict(value)) for key, value in federation.profiles.items()},
        "dropout": {"rate": federation.dropout.rate, "always": sorted(federation.dropout.always)},
        "joins": dict(federation.joins),
        "egress": {node: sorted(kinds) for node, kinds in federation.egress.items()},
        "homes": dict(federation.homes),
        "tasks": dict(federation.tasks),
        "headline": federation.method.headline,
        "recipe": federation.recipe,
        "leaks": list(federation.leaks),
        **_if_given(federation),
        **described(federation.task),
    }


def _if_given(federation: Federation) -> dict[str, Any]:
    """Return what stands in a run folder only where something is said of it."""
    found: dict[str, Any] = {}
    if federation.capacity:
        found["capacity"] = {name: asdict(own) for name, own in federation.capacity.items()}
    if federation.privacy:
        found["privacy"] = {name: readable(privacy) for name, privacy in federation.privacy.items()}
    if federation.bound is not None or federation.expel is not None:
        found["door"] = {"bound": federation.bound, "expel": federation.expel}
    if federation.attack is not None:
        found["attack"] = federation.attack.told()
    if federation.untrained:
        found["untrained"] = list(federation.untrained)
    return found


def _starts(models: Models) -> dict[str, list[Any]]:
    """Return, for each slot, what of its model is known without building it."""
    found = {slot: model_of(model) for slot, model in models.items()}
    return {
        slot: [model.share, model.buffers, model.common, *(["norms"] if model.norms == "private" else [])]
        for slot, model in found.items()
    }


def options_of(method: Method) -> dict[str, Any]:
    """Return all options of a method, as a run folder keeps them."""
    return {key: readable(value) for key, value in vars(method).items()}


def readable(value: Any) -> Any:
    """Return an option as JSON has it. A part that is a function or an object is written as text."""
    if isinstance(value, float):
        return "inf" if math.isinf(value) else value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    if isinstance(value, partial):
        return [readable(part) for part in (value.func, value.args, value.keywords)]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: readable(getattr(value, field.name)) for field in fields(value)}
    return _in_words(value)


def _in_words(value: Any) -> str:
    """Return what a function or an object is called."""
    text = getattr(value, "__qualname__", None) or repr(value)
    return type(value).__qualname__ if " at 0x" in text else text  # an address says nothing to another process
