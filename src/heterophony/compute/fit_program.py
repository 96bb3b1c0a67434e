"""What makes two fits the same program, so that a lane that was made for one serves the other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from heterophony.compute import signature
from heterophony.compute.choice import key_of
from heterophony.compute.eager import Job, transforms_of
from heterophony.kernel.work import Fit

if TYPE_CHECKING:
    from heterophony.compute.captured_fit import Rows

Kind = tuple[Hashable, ...]


class Network:
    """What equal networks have in common: one object for all of them in this process, with a name for others."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Signatures:
    """Networks and what is done with them, by value. A network is looked through again when it has changed."""

    def __init__(self) -> None:
        self.networks: dict[Hashable, Network] = {}
        self.known: WeakKeyDictionary[nn.Module, tuple[signature.Look, Network]] = WeakKeyDictionary()
        self.programs: dict[Hashable, Hashable] = {}  # by the identity of its parts, for as long as these stay

    def program(self, work: Fit) -> Hashable:
        """All but networks and data. What closures hold may change between two calls, not within one."""
        asked = work.teachers, work.parts, work.only
        parts = (
            work.models, asked, id(work.loss), id(work.transform), id(work.optimiser), work.batch, work.answer,
        )  # fmt: skip
        if parts not in self.programs:
            transforms = tuple((name, signature.of_function(t)) for name, t in sorted(transforms_of(work).items()))
            self.programs[parts] = (
                work.names, asked, signature.of_function(work.loss, loose=True), transforms, work.batch,
                signature.of_value(work.optimiser), work.answer,
            )  # fmt: skip
        return self.programs[parts]

    def network(self, module: nn.Module) -> Network:
        known = self.known.get(module)
        if known is not None and known[0].same:
            return known[1]
        exact = signature.of_module(module)
        found = self.networks.get(exact)
        if found is None:
            found = self.networks[exact] = Network(key_of(exact))
        self.known[module] = signature.Look(module), found
        return found


def kind_of(job: Job, rows: Rows, signatures: Signatures) -> Kind:
    """What makes two fits the same program, and last the room they need; raises `signature.Unknown`."""
    node, work = job.node, job.work
    assert isinstance(work, Fit)
    options = work.optimiser.options
    if work.optimiser.name not in ("SGD", "Adam", "AdamW") or options.get("dampening"):
        raise signature.Unknown(f"the optimiser {work.optimiser.name}")  # whose fresh state may not be all zeros
    models = tuple((name, signatures.network(node.slots[name].module)) for name in (*work.names, *work.teachers))
    view = rows.form, rows.view.classes, signature.of_value(rows.view.augment)
    return models, signatures.program(work), *view, _structure(work.aux), capacity(rows.count)


def capacity(rows: int) -> int:
    """Room for so many rows: steps of a quarter of a power of two, so that unequal participants share lanes."""
    if rows <= 16:
        return 16
    step = 1 << max(0, (rows - 1).bit_length() - 3)
    return -(-rows // step) * step


def _structure(aux: Any) -> Hashable:
    if isinstance(aux, Tensor):
        return tuple(aux.shape), aux.dtype
    if isinstance(aux, Mapping):
        return tuple((key, _structure(value)) for key, value in aux.items())
    return signature.of_value(aux)
