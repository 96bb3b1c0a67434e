"""What makes two fits the same program, so that what was captured for one serves the other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from heterophony.compute import signature
from heterophony.compute.choice import key_of
from heterophony.compute.eager import Job, transforms_of
from heterophony.kernel.optimisers import Optimiser
from heterophony.kernel.work import Fit

if TYPE_CHECKING:
    from heterophony.compute.captured_fit import TrainingRows


class Architecture:
    """What equal networks have in common: one object for all of them in this process, with a name for others."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class FitProgram(NamedTuple):
    """What makes two fits the same program. It is a tuple, so that comparing and hashing it cost little."""

    networks: tuple[tuple[str, Architecture], ...]  # of trained models and of teachers, by name
    training: Hashable  # loss, transforms, optimiser, size of a batch and what is answered
    columns: Hashable  # names, shapes and types of what is read
    task: Hashable
    augment: Hashable
    aux: Hashable
    room: int  # for so many rows, at least

    @property
    def without_room(self) -> tuple[Hashable, ...]:
        """Return the rest: how many rows there is room for does not decide which way is the fastest."""
        return self[:-1]


class Signatures:
    """Networks, and what is done with them, compared by value. A network that has changed is looked through again."""

    def __init__(self) -> None:
        self.architectures: dict[Hashable, Architecture] = {}
        self.known: WeakKeyDictionary[nn.Module, tuple[signature.LastSeen, Architecture]] = WeakKeyDictionary()
        self.trainings: dict[Hashable, Hashable] = {}  # by the identity of its parts, for as long as these stay
        self.programs: dict[FitProgram, FitProgram] = {}  # equal ones are one object
        self.found: dict[Hashable, tuple[Any, FitProgram]] = {}  # by identity too, with what must stay

    def forget(self) -> None:
        """Forget what goes by identity: reactions have run since, and closures may hold other values."""
        self.trainings.clear()
        self.found.clear()

    def training(self, work: Fit) -> Hashable:
        """Return all of a fit but its networks and data.

        What closures hold may change between two calls of the executor, not within one.
        """
        asked = work.teachers, work.parts, work.only
        parts = (
            work.models, asked, id(work.loss), id(work.transform), id(work.optimiser), work.batch, work.answer,
        )  # fmt: skip
        if parts not in self.trainings:
            transforms = tuple((name, signature.of_function(t)) for name, t in sorted(transforms_of(work).items()))
            self.trainings[parts] = (
                work.names, asked, signature.of_function(work.loss, loose=True), transforms, work.batch,
                _of_optimiser(work.optimiser), work.answer,
            )  # fmt: skip
        return self.trainings[parts]

    def architecture(self, module: nn.Module) -> Architecture:
        """Return the one object for all networks that equal this one."""
        known = self.known.get(module)
        if known is not None and known[0].same:
            return known[1]
        exact = signature.of_module(module)
        found = self.architectures.get(exact)
        if found is None:
            found = self.architectures[exact] = Architecture(key_of(exact))
        self.known[module] = signature.LastSeen(module), found
        return found


def program_of(job: Job, rows: TrainingRows, signatures: Signatures) -> FitProgram:
    """Return a fit's program. Raise `signature.Unknown` where it cannot be told from others."""
    node, work = job.node, job.work
    assert isinstance(work, Fit)
    if work.private is not None:
        raise signature.Unknown("private steps, whose batches are drawn row by row")
    options = work.optimiser.options
    if work.optimiser.name not in ("SGD", "Adam", "AdamW") or options.get("dampening"):
        raise signature.Unknown(f"the optimiser {work.optimiser.name}")  # whose fresh state may not be all zeros
    names, task, augment = (*work.names, *work.teachers), rows.view.task, rows.view.augment
    networks = tuple([(name, signatures.architecture(node.slots[name].module)) for name in names])
    columns, room = rows.form, capacity(rows.count)
    asked = id(work), id(task), id(augment), networks, columns, room  # the same for all of a cohort, mostly
    if asked in signatures.found:
        return signatures.found[asked][1]
    program = FitProgram(
        networks=networks,
        training=signatures.training(work),
        columns=columns,
        task=signature.of_value(task),
        augment=signature.of_value(augment),
        aux=_structure(work.aux),
        room=room,
    )
    program = signatures.programs.setdefault(program, program)
    signatures.found[asked] = (work, task, augment), program
    return program


def capacity(rows: int) -> int:
    """Return room for so many rows.

    It grows in steps of a quarter of a power of two, so that participants with about equally many rows share what was
    captured.
    """
    if rows <= 16:
        return 16
    step = 1 << max(0, (rows - 1).bit_length() - 3)
    return -(-rows // step) * step


def _of_optimiser(optimiser: Optimiser) -> Hashable:
    """Return an optimiser as something that is compared by value.

    A rate that changes from round to round is left out. So is what says nothing, since runs keep names of programs.
    """
    silent = {"clip"} if optimiser.clip is None else set()
    silent |= {"lr"} if optimiser.changing else {"changing"}
    parts = ((f.name, getattr(optimiser, f.name)) for f in fields(optimiser) if f.name not in silent)
    return Optimiser, tuple((name, signature.of_value(value)) for name, value in parts)


def _structure(aux: Any) -> Hashable:
    if isinstance(aux, Tensor):
        return tuple(aux.shape), aux.dtype
    if isinstance(aux, Mapping):
        return tuple((key, _structure(value)) for key, value in aux.items())
    return signature.of_value(aux)
