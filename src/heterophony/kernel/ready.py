"""What is checked of models and data that somebody made in Python, before anything runs. Each error is one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import fields
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heterophony.base import fault
from heterophony.base.seeds import seeded
from heterophony.base.wording import listed
from heterophony.data.errors import DataError
from heterophony.data.sound import check_kind, check_rows, check_targets
from heterophony.data.stream import Stream
from heterophony.data.table import Data
from heterophony.data.views import FOLLOW
from heterophony.kernel.message import Kind
from heterophony.kernel.method import Method
from heterophony.kernel.needs import Reads, Validation
from heterophony.kernel.networks import Architectures, Model
from heterophony.kernel.topology import Topology


# -- kinds of values: as a federation is made ------------------------------------------------------------------
def check_values(method: Any, topology: Any, models: Any, data: Any, tests: Any) -> None:
    """Raise where one value was given for another: a class for an instance, an array for data."""
    _check_instance("method", method, Method, "FedAvg()")
    _check_instance("topology", topology, Topology, "star(10)")
    for name, table in (("models", models), ("data", data), ("tests", tests)):
        if not isinstance(table, Mapping):
            whose = "domain" if name == "tests" else "node or role"
            raise ValueError(f"{name} must be a table by {whose}, got a {type(table).__name__}")
    for owner, slots in models.items():
        _check_models(owner, slots)
    for owner, views in data.items():
        _check_views(owner, views)
    for domain, splits in tests.items():
        for split, rows in (splits if isinstance(splits, Mapping) else {"test": splits}).items():
            check_kind(rows, f"{split} set {domain}")


def _check_instance(name: str, given: Any, wanted: type, example: str) -> None:
    if isinstance(given, wanted):
        return
    if isinstance(given, type):
        raise ValueError(f"{name} is the class {given.__name__}: write {given.__name__}()")
    if callable(given):
        called = getattr(given, "__name__", type(given).__name__)
        raise ValueError(f"{name} is the function {called}: call it, as {called}(...)")
    hint = "; for methods by name: heterophony.settings.assemble" if isinstance(given, str) else ""
    raise ValueError(f"{name} must be a {wanted.__name__}, such as {example}, got {given!r:.60}{hint}")


def _check_models(owner: str, slots: Any) -> None:
    """Raise where a node's models are no table of modules, or of functions that build them."""
    if not isinstance(slots, Mapping):
        raise ValueError(f"models of {owner}: write {{{owner!r}: {{'model': ...}}}}, got a {type(slots).__name__}")
    for slot, model in slots.items():
        if not isinstance(model, Model | nn.Module) and not callable(model):
            raise ValueError(
                f"models of {owner}: {slot!r} must be a module, or a function that builds one, got {model!r:.60}"
            )


def _check_views(owner: str, views: Any) -> None:
    """Raise where a node's data are no table of views. Those of a function are seen when they are made."""
    if not isinstance(views, Mapping):
        check_kind(views, f"data of {owner}")
        return
    for view, rows in views.items():
        made_later = isinstance(rows, Stream) or (callable(rows) and not isinstance(rows, type))
        if not made_later:
            check_kind(rows, f"{view} of {owner}")


# -- what is there: as a run begins ----------------------------------------------------------------------------
class Holding(NamedTuple):
    """What one node has."""

    node: str
    role: str
    models: Mapping[str, Model]
    data: Mapping[str, Any]
    inner: bool  # whether others are below it


def check(method: Method, holdings: Iterable[Holding], tests: Iterable[tuple[str, Data]]) -> None:
    """Raise where a node lacks a model or a view, or where rows are not what networks and tasks need.

    `tests` are all test sets with their names in errors.
    """
    networks, wanted = method.networks(), reads(method)
    reading = _Reading()
    for held in sorted(holdings, key=lambda held: held.inner):  # participants first: servers have much from them
        for slot, choice in networks.get(held.role, {}).items():
            if slot not in held.models and not isinstance(choice, Architectures):
                raise ValueError(
                    f"{held.node} has no model {slot!r}, which {type(method).__name__} needs of each {held.role}: "
                    f"models={{{held.role!r}: {{{slot!r}: ...}}}}"
                )
        if held.role != method.roles[-1] or not held.inner:
            _check_there(held, wanted[held.role], type(method).__name__)
        for view, data in held.data.items():
            if isinstance(data, Data) and "x" in data.columns and len(data):  # a participant may have no rows
                reading.check(held, view, data)
    for where, data in tests:
        check_rows(data, where)
        check_targets(data, where)


def reads(method: Method) -> dict[str, dict[str, str]]:
    """Return the views that nodes of each role read with these options, and why. "mine" may be missing."""
    found: dict[str, dict[str, str]] = {role: {} for role in method.roles}
    found[method.roles[-1]] = _read_by_participants(method)
    sent = {kind.name for kind in method.sends()}
    for reaction in method.reactions:
        for kind in _heard(reaction.trigger):
            views = [getattr(field, "view", None) for field in kind.fields.values()]
            named = [view for view in views if view and kind.name in sent]
            for role, view in product(reaction.roles, named):
                found[role].setdefault(view, f"messages {kind.name!r}")
    return found


def _read_by_participants(method: Method) -> dict[str, str]:
    """Return the views that participants read by the method's options, whatever they are sent, and why."""
    found: dict[str, str] = {}
    for field in fields(method):  # type: ignore[arg-type]
        part = getattr(method, field.name)
        if isinstance(part, Reads):
            found |= part.reads(field.name)
    if method.public:
        found.setdefault("public", "public data")
    if any(isinstance(need, Validation) for need in method.needs()):
        found["validation"] = "rows to choose on"
    return found


def _heard(trigger: Any) -> list[Kind]:
    """Return the kinds of messages that a reaction gets."""
    own = getattr(trigger, "kind", None)
    return [*([] if own is None else [own]), *getattr(trigger, "also", ())]


def _check_there(held: Holding, wanted: Mapping[str, str], method: str) -> None:
    """Raise where a node lacks a view that is read and does not follow from others."""
    for view, why in wanted.items():
        if view in held.data or view == "mine":
            continue
        missing = next((source for source in FOLLOW.get(view, ()) if source not in held.data), view)
        there = f"it has {listed(list(held.data))}" if held.data else "it has no data"
        raise ValueError(
            f"{held.node} has no view {missing!r}, which {method} needs ({why}); {there}: "
            f"data={{{held.node!r}: {{{missing!r}: Data(...)}}}}"
        )


class _Reading:
    """Which rows are sound, and which networks have read rows of their form.

    What many nodes hold is looked at once. Each network is built once, and tried on two rows of each form.
    """

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()  # data, and the network that reads them
        self.built: dict[int, nn.Module] = {}
        self.kept: list[Any] = []  # so that nothing else gets the same id
        self.given: dict[tuple[int, torch.Size, torch.dtype], Any] = {}  # outputs, by network and form of rows

    def check(self, held: Holding, view: str, data: Data) -> None:
        """Raise where a node's rows are not what its networks and its task need."""
        network = held.models.get("model") or next(iter(held.models.values()), None)
        if view != "train":
            network = None
        key = (id(data), 0 if network is None else _source(network))
        if key in self.seen:
            return
        self.seen.add(key)
        self.kept.append((data, network))
        where = f"{view} of {held.node}"
        if network is None:
            check_rows(data, where)
        else:
            self._read(where, held.node, network, data)
        if "y" in data.columns:
            check_targets(data, where)

    def _read(self, where: str, node: str, network: Model, data: Data) -> None:
        """Raise where a network cannot read the rows, or gives fewer outputs than there are classes."""
        key = _source(network)
        if key not in self.built:
            self.built[key] = _built(node, network)
        module = self.built[key]
        weights = next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), None)
        check_rows(data, where, weights)
        form = (key, data.columns["x"].shape[1:], data.columns["x"].dtype)
        if form not in self.given:
            self.given[form] = _tried(where, module, data)
        _check_outputs(where, self.given[form], data)


def _source(network: Model) -> int:
    """Return what is the same for all nodes with one factory, or with copies of one module."""
    build = network.build
    return id(build.args[0] if isinstance(build, partial) and build.func is deepcopy else build)


def _built(node: str, network: Model) -> nn.Module:
    """Build a network only to look at it."""
    try:
        with seeded("only to be looked at"):
            made = network.build()
    except Exception as error:  # whatever a user's code does
        raise ValueError(f"the model of {node} cannot be built: {fault.in_one_line(error)}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"the model of {node} is a {type(made).__name__}, not a torch.nn.Module")
    return made


def _tried(where: str, module: nn.Module, data: Data) -> Any:
    """Return a network's outputs for two rows."""
    rows = data.x[:2]
    modes = [each.training for each in module.modules()]
    try:
        with torch.no_grad(), seeded("only to be looked at"):
            return module.eval()(rows)
    except Exception as error:  # whatever a user's code does
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(
            f"{where}: x has rows of {tuple(rows.shape[1:])}, which the network cannot read ({reason:.160})"
        ) from error
    finally:
        for each, mode in zip(module.modules(), modes, strict=True):
            each.training = mode


def _check_outputs(where: str, outputs: Any, data: Data) -> None:
    """Raise where there are more classes, or other targets, than outputs."""
    if not isinstance(outputs, Tensor) or "y" not in data.columns or outputs.ndim < 2:
        return
    given, wanted = outputs.shape[1], data.task.outputs
    if data.task.kind == "classification" and not data.columns["y"].is_floating_point():
        labels = data.columns["y"]
        known = wanted or (1 + int(labels.max()) if labels.numel() else 0)
        if given < known:
            raise DataError(f"{where}: the network gives {given} outputs, but there are {known} classes")
    elif data.task.kind == "regression" and given != wanted:
        raise DataError(f"{where}: the network gives {given} outputs, but there are {wanted} targets")
