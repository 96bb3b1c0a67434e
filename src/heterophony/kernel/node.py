"""One participant: its models, its data, its variables. A reaction reads and writes its own node only."""

from __future__ import annotations

import random
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.base import codec
from heterophony.base.seeds import derive, generator
from heterophony.data.stream import Stream
from heterophony.data.table import Data
from heterophony.kernel.capacity import Capacity
from heterophony.kernel.fields import Copied, Form, Shape, form_in_common, form_of
from heterophony.kernel.freezing import frozen_names
from heterophony.kernel.statistics import norms
from heterophony.kernel.topology import Links
from heterophony.kernel.vault import SeededVault, Vault

Now = tuple[int, float]  # a node's round, and the virtual moment


@dataclass(frozen=True)
class Slot:
    """A place for a model on a node: which module lives there and what of it may travel.

    `share` names the sub-modules whose weights may travel ("" is the whole, "*.up" all tensors that are called so).
    Float buffers (BatchNorm's statistics) travel with them unless `buffers` is "private". Integer buffers and frozen
    parts never travel. With `norms` "private" nothing of a BatchNorm layer does.
    """

    module: nn.Module
    share: tuple[str, ...] = ("",)
    buffers: str = "shared"
    norms: str = "shared"

    def __post_init__(self) -> None:
        self.settle()  # looks its buffers up before the module runs, which may assign others

    @property
    def whole(self) -> bool:
        """Return whether all of the model may travel."""
        return "" in self.share

    def shared(self) -> dict[str, Tensor]:
        """Return the tensors that may travel, live."""
        return self._shared

    def tensors(self) -> dict[str, Tensor]:
        """Return all that changes, live: parameters and all buffers."""
        return self._tensors

    @property
    def settled(self) -> bool:
        """Return whether the module's buffers are those it had."""
        return all(owner._buffers[leaf] is buffer for owner, leaf, buffer in self._buffers)

    def settle(self) -> None:
        """Put the module's own buffers back in their places, with the values of those that it assigned anew."""
        if self.settled:
            return
        for owner, leaf, buffer in self._buffers:
            assigned = owner._buffers[leaf]
            if assigned is not buffer:
                with torch.no_grad():
                    buffer.copy_(assigned)  # type: ignore[arg-type]
                owner._buffers[leaf] = buffer

    @cached_property
    def form(self) -> Form:
        """Return shapes and dtypes of the tensors that may travel."""
        return form_of(self._shared)

    # Walking through a module costs more than training a small one for a step, so both are looked up once.
    @cached_property
    def _shared(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = dict(self.module.named_parameters())
        if self.buffers == "shared":
            found |= {name: buffer for name, buffer in self.module.named_buffers() if buffer.is_floating_point()}
        if self.norms == "private":
            own = norms(self.module)
            found = {name: tensor for name, tensor in found.items() if name.rpartition(".")[0] not in own}
        still = frozen_names(self.module)
        kept: dict[str, Tensor] = {}
        for part in ("",) if self.whole else self.share:
            names = [name for name in found if _is_of(name, part)]
            if part and not names:
                raise ValueError(f"share names {part!r}, but the model has no such part with weights")
            kept |= {name: found[name] for name in names if name not in still}
        if still and not kept:
            raise ValueError("all that would travel of the model is frozen: freeze less of it, or share more")
        return kept

    @cached_property
    def _buffers(self) -> list[tuple[nn.Module, str, Tensor]]:
        found = []
        for part in self.module.modules():
            for leaf, buffer in part._buffers.items():
                if buffer is not None:
                    found.append((part, leaf, buffer))
        return found

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}


def _is_of(name: str, part: str) -> bool:
    """Return whether a tensor is of a part: a sub-module, the tensor itself, or of `*.up` all that are called so."""
    if part.startswith("*."):
        return f".{name}".endswith(part[1:])
    return not part or name == part or name.startswith(f"{part}.")


def laid_out(module: nn.Module, layout: torch.memory_format) -> None:
    """Lay the module's weights out anew."""
    for tensor in module.parameters():
        if tensor.dim() == 4:
            # By way of the contiguous layout: where a dimension is one, the strides are then those that gradients get.
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format).contiguous(memory_format=layout)


def copy_into(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy many tensors; on a GPU, in few launches."""
    targets, sources = list(targets), list(sources)
    with torch.no_grad():
        if targets and targets[0].device.type == "cpu":
            torch._foreach_copy_(targets, sources)
            return
        if len({(tensor.dtype, tensor.is_cuda) for tensor in (*targets, *sources)}) == 1:
            torch._foreach_copy_(targets, sources)
            return
        alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}  # a launch takes one type
        for to, of in zip(targets, sources, strict=True):
            if of.is_cuda and to.is_cuda:
                group = alike.setdefault(to.dtype, ([], []))
                group[0].append(to)
                group[1].append(of)
            else:
                to.copy_(of, non_blocking=to.is_cuda)  # towards the CPU it would not be there yet
        for targets, sources in alike.values():
            torch._foreach_copy_(targets, sources)


def copied(tensors: Mapping[str, Tensor], form: Form) -> dict[str, Tensor]:
    """Return a contiguous copy, written at once: the new tensors are parts of one. `form` is that of the tensors."""
    if form.dtype is None:
        return {name: t.detach().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    with torch.no_grad():
        live = list(tensors.values())
        flat = torch._utils._flatten_dense_tensors(live)  # type: ignore[no-untyped-call]
        if len(live) == 1:  # flat is the tensor itself, not a copy
            flat = flat.clone()
    return Copied(flat, form)


class Variables(UserDict[str, Any]):
    """What a node remembers between reactions. Only names that the method declares in `memory`."""

    def __init__(self, declared: Iterable[str]) -> None:
        self.declared = frozenset(declared)
        super().__init__()

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.declared:
            known = ", ".join(sorted(self.declared)) or "none"
            raise KeyError(f"undeclared variable {name!r}: name it in the method's memory (declared: {known})")
        super().__setitem__(name, value)


class Views(UserDict[str, Any]):
    """A node's data by name, on the CPU, where reactions read them.

    A factory is called when its view is first needed. Of a stream, the rows of the node's present round are read, or
    of the moment at which its present reaction began.
    """

    def __init__(
        self, views: Mapping[str, Any], device: str = "cpu", now: Callable[[], Now] = lambda: (0, 0.0)
    ) -> None:
        self.device, self.now = device, now
        super().__init__(views)

    def placed(self, name: str) -> Data:
        """Return a view on the node's device, where work reads it."""
        if self.device == "cpu":
            return self[name]
        return self[name].placed(self.device)

    def __getitem__(self, name: str) -> Data:
        if name not in self.data:
            raise KeyError(f"the node has no data view {name!r}; it has {', '.join(self.data) or 'none'}")
        found = self.data[name]
        if isinstance(found, Data):
            return found
        if isinstance(found, Stream):
            return found.at(found.step(*self.now()))
        made: Data = found()
        self.data[name] = made
        return made


class Node:
    """One participant as its reactions see it."""

    __slots__ = (
        "account",
        "capacity",
        "coded",
        "data",
        "device",
        "doubts",
        "epochs",
        "groups",
        "id",
        "links",
        "optimisers",
        "past",
        "refusals",
        "role",
        "round",
        "seed",
        "shared",
        "slots",
        "time",
        "vars",
        "vault",
    )

    def __init__(
        self,
        id: str,
        role: str,
        *,
        slots: Mapping[str, Slot] | None = None,
        data: Mapping[str, Data | Callable[[], Data]] | None = None,
        memory: Iterable[str] = (),
        links: Links | None = None,
        seed: int = 0,
        device: str = "cpu",
        capacity: Callable[[str], Capacity] = lambda node: Capacity(),
    ) -> None:
        self.capacity = capacity  # what a node can hold of a common network, by its id
        self.id, self.role, self.seed, self.device = id, role, seed, device
        self.slots = dict(slots or {})
        self.data = Views(data or {}, device, lambda: (self.round, self.time))
        self.vars = Variables(memory)
        self.links = links or Links()
        self.round = 0
        self.time = 0.0  # virtual seconds, when the present reaction began
        self.groups: dict[str, tuple[str, ...]] = {}  # set by the present reaction; its windows remember them
        self.doubts: list[str] = []  # of the present reaction: whose items were far from the rest
        self.refusals: list[str] = []  # of the present reaction: mail that it does not act on, and why
        self.optimisers: dict[str, dict[str, Any]] = {}
        self.past: dict[str, dict[str, list[dict[str, Tensor]]]] = {}  # of a liar: what it would have sent (`Attack`)
        self.shared = False  # whether its models lie in memory that forked processes can write to
        self.epochs: dict[str, int] = {}  # per data view: how many orders have been drawn from it
        self.account: dict[str, Any] = {}  # what has been told of its data, and how often noise and secrets were drawn
        self.vault: Vault = SeededVault()  # at home, the owner's
        self.coded: dict[str, Any] = {}  # of compressed messages: what was lost, what was heard, what was sent to whom

    # -- place in the network --------------------------------------------------------------------------------
    @property
    def parent(self) -> str | None:
        return self.links.parent[0] if self.links.parent else None

    @property
    def children(self) -> tuple[str, ...]:
        return self.links.children

    @property
    def peers(self) -> tuple[str, ...]:
        return self.links.peers

    def cohort(self, fraction: float = 1.0, of: str = "children", name: str = "cohort") -> tuple[str, ...]:
        """Draw a share of a link's members (at least one), and make it a group that `Every` can wait for."""
        members = self.links.group(of)
        if not 0 < fraction <= 1:
            raise ValueError(f"a cohort is a share in (0, 1], got {fraction}")
        size = share_of(len(members), fraction)
        if size < len(members):
            # What random.sample costs goes by how many it draws, not by how many there are.
            draw = random.Random(derive(self.seed, self.id, self.round, name))
            members = tuple(members[i] for i in sorted(draw.sample(range(len(members)), size)))
        return self.group(members, name)

    def group(self, members: Sequence[str], name: str = "cohort") -> tuple[str, ...]:
        """Make these members of a link a group that `Every` can wait for."""
        self.groups[name] = tuple(members)
        return self.groups[name]

    # -- models ----------------------------------------------------------------------------------------------
    @property
    def models(self) -> dict[str, nn.Module]:
        """Return the modules themselves, by name."""
        return {name: slot.module for name, slot in self.slots.items()}

    def weights(self, model: str = "model") -> dict[str, Tensor]:
        """Return a copy of what the model shares, on the device where the model is."""
        return copied(self.slots[model].shared(), self.slots[model].form)

    def payload(self, model: str = "model") -> int:
        """Return the bytes of what the model shares."""
        return self.slots[model].form.payload

    def load(self, weights: Mapping[str, Tensor], model: str = "model") -> None:
        """Overwrite what the model shares; its private part stays."""
        slot = self.slots[model]
        shared = slot.shared()
        if form_in_common((weights,)) is slot.form:
            copy_into(shared.values(), weights.parts)  # type: ignore[attr-defined]
            return
        if weights.keys() != shared.keys():
            odd = ", ".join(sorted(weights.keys() ^ shared.keys())[:3])
            raise ValueError(f"node {self.id}: weights do not match model {model!r}: {odd}")
        copy_into(shared.values(), [weights[name] for name in shared])

    def copy(self, source: str, target: str) -> None:
        """Make one model equal to another of the same architecture, private parts and all buffers included."""
        of, to = self.slots[source].tensors(), self.slots[target].tensors()
        copy_into(to.values(), [of[name] for name in to])

    # -- randomness ------------------------------------------------------------------------------------------
    def rng(self, purpose: str) -> torch.Generator:
        """Return a generator that follows from (seed, node, round, purpose)."""
        return generator(self.seed, self.id, self.round, purpose)

    def order(self, view: str, rows: int) -> Tensor:
        """Return the next random order of a view. It follows from (seed, node, view, that view's epoch counter)."""
        epoch = self.epochs.get(view, 0)
        self.epochs[view] = epoch + 1
        return torch.randperm(rows, generator=generator(self.seed, self.id, view, epoch))

    # -- secrets ---------------------------------------------------------------------------------------------
    def fresh(self, purpose: str) -> bytes:
        """Make a new secret of a purpose, and return it. The one before is gone."""
        counts = dict(self.account.get("secrets", {}))
        counts[purpose] = self.vault.fresh(self, purpose, counts.get(purpose, 0))
        self.account["secrets"] = counts
        return self.secret(purpose)

    def secret(self, purpose: str) -> bytes:
        """Return the newest secret of a purpose: 32 bytes that nobody else can know, outside a simulation."""
        return self.vault.secret(self, purpose, self.account.get("secrets", {}).get(purpose, 0))

    # -- state -----------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Return all that must survive between reactions, as plain values and live tensors."""
        found: dict[str, Any] = {
            "round": self.round,
            "vars": dict(self.vars),
            "away": away(dict(self.vars)),  # which variables lie on the device: a snapshot brings them back there
            "epochs": self.epochs,
            "optimisers": self.optimisers,
            "models": {name: slot.tensors() for name, slot in self.slots.items()},
        }
        if self.past:
            found["past"] = self.past
        if self.coded:
            found["coded"] = dict(self.coded)
        return {**found, "account": dict(self.account)} if self.account else found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state. It belongs to the node from then on."""
        self.round = state["round"]
        self.vars.data = moved(dict(state["vars"]), set(state.get("away", ())), self.device)
        self.account, self.coded = dict(state.get("account", {})), dict(state.get("coded", {}))
        self.epochs, self.optimisers, self.past = state["epochs"], state["optimisers"], state.get("past", {})
        with torch.no_grad():
            for name, slot in self.slots.items():
                known = state["models"].get(name, {})
                if odd := known.keys() ^ slot.tensors().keys():
                    raise ValueError(f"node {self.id}: model {name!r} is not the network that was saved: {min(odd)}")
                for key, tensor in slot.tensors().items():
                    tensor.copy_(known[key])

    def check(self) -> None:
        """Raise unless every variable can be written to a snapshot or sent to another process."""
        if not self.vars.data:
            return
        self.vars.data = codec.contiguous(self.vars.data)
        for name, value in self.vars.items():
            try:
                codec.packed_size(value)
            except TypeError as error:
                raise TypeError(f"variable {name!r}: {error}") from None

    @property
    def shape(self) -> Shape:
        """Return what the node's door must know to check its mail."""

        def view(name: str) -> tuple[int, int | None] | None:
            if name not in self.data:
                return None
            found = self.data[name]
            return len(found), found.classes

        return Shape({name: slot.form for name, slot in self.slots.items()}, view)


def share_of(members: int, fraction: float) -> int:
    """Return how many a share of so many members are: at least one, unless there are none."""
    return min(members, max(1, round(fraction * members)))


def away(value: Any, path: str = "") -> list[str]:
    """Return the paths of tensors that are not on the CPU."""
    if isinstance(value, Tensor):
        return [] if value.device.type == "cpu" else [path]
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    found = []
    for key, item in items:
        found += away(item, f"{path}/{key}")
    return found


def moved(value: Any, away: set[str], device: str, path: str = "") -> Any:
    """Return the value with the tensors of these paths on the device."""
    if not away:
        return value
    if isinstance(value, Tensor):
        return value.to(device) if path in away else value
    if isinstance(value, list | tuple):
        return type(value)(moved(item, away, device, f"{path}/{i}") for i, item in enumerate(value))
    if isinstance(value, dict):
        return {key: moved(item, away, device, f"{path}/{key}") for key, item in value.items()}
    return value
