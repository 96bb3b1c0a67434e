"""Which networks a role needs: the values of a method's `models`, and what each of them means.

    models = {"server": {"model": Global()}, "client": {"model": Own(), "meme": Global()}}

A setting, and a plan between organisations, each offer the networks that they know (`Offer`). `choose` takes from them
what a role needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, get_args

from torch import nn

from heterophony.base import fault
from heterophony.kernel.capacity import Capacity, Cut, Cutting

Start = Literal["different", "alike"]


@dataclass(frozen=True)
class Model:
    """How a node gets a model: a factory, what of it is shared, and whether all nodes start alike."""

    build: Callable[[], nn.Module]
    share: str | tuple[str, ...] = ""  # sub-modules that travel; "" is the whole model
    buffers: Literal["shared", "private"] = "shared"
    norms: Literal["shared", "private"] = "shared"  # whether BatchNorm's layers travel, with all that is in them
    common: bool = False  # the same initial weights in the slots of this name on all nodes

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the sub-modules that travel."""
        return (self.share,) if isinstance(self.share, str) else self.share


Models = Mapping[str, Model | nn.Module | Callable[[], nn.Module]]  # by slot, as a user gives them


def model_of(given: Model | nn.Module | Callable[[], nn.Module]) -> Model:
    """Return a model with a factory. A live module is copied for each node that gets it."""
    if isinstance(given, Model):
        return given
    return Model(partial(deepcopy, given) if isinstance(given, nn.Module) else given)


@dataclass(frozen=True)
class Offer:
    """The networks from which those of one node are chosen. None stands for one that is not known here."""

    own: Model | None = None  # a participant's own
    travelling: Model | None = None  # the one that travels, or that a server has
    same: Model | None = None  # the one that everyone has
    architectures: Mapping[str, Model] | None = None  # by name, each network that some participant has

    def network(self, which: Literal["own", "travelling", "same"]) -> Model:
        """Return one of the networks; raise where it is not known."""
        found: Model | None = getattr(self, which)
        if found is None:
            raise NotOffered(which)
        return found


class NotOffered(LookupError):
    """A role needs a network that is not known here; `which` is the field of `Offer`."""

    def __init__(self, which: str) -> None:
        super().__init__(f"the network {which!r} is not known here")
        self.which = which


# -- the values ------------------------------------------------------------------------------------------------
# Of each, `averaged` says whether a method averages its weights, so that what travels has one shape on all nodes.
@dataclass(frozen=True)
class Own:
    """A participant's own network, as the setting lists them. With `start="alike"` equal networks start alike."""

    start: Start = "different"
    averaged: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_start(self)

    def models(self, name: str, offer: Offer) -> dict[str, Model]:
        return {name: replace(offer.network("own"), common=self.start == "alike")}


@dataclass(frozen=True)
class Global:
    """The network that travels between participants with networks of their own, or that a server learns."""

    averaged: ClassVar[bool] = False

    def models(self, name: str, offer: Offer) -> dict[str, Model]:
        return {name: replace(offer.network("travelling"), common=False)}


@dataclass(frozen=True)
class Same:
    """The same network for everyone, because its weights are averaged. With `start="alike"` all start alike, too.

    Only what travels of it must have one shape. A federation in which it has not is refused. With `norms="private"`
    BatchNorm's layers do not travel.
    """

    start: Start = "different"
    norms: Literal["shared", "private"] = "shared"
    averaged: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_start(self)

    def models(self, name: str, offer: Offer) -> dict[str, Model]:
        return {name: replace(offer.network("same"), common=self.start == "alike", norms=self.norms)}


@dataclass(frozen=True)
class Architectures:
    """One model for each network that some participant has. A model's name is that of its network."""

    averaged: ClassVar[bool] = False

    def models(self, name: str, offer: Offer) -> dict[str, Model]:
        if offer.architectures is None:
            raise NotOffered("architectures")
        return dict(offer.architectures)


@dataclass(frozen=True)
class Built:
    """A network that is built from others: `Built(Spliced, {"small": Global(), "own": Own()}, travels="small")`.

    `make` is a class, or a function, of a module. It is called with the networks of `of` by keyword, and returns a
    module in which they stand by these names. `travels` names what is shared of the whole: of one of these networks
    the part that the setting shares, of any other sub-module all. By default the whole travels.
    """

    make: Callable[..., nn.Module]
    of: Mapping[str, NetworkChoice]
    travels: str | tuple[str, ...] = ""

    def __post_init__(self) -> None:
        name = getattr(self.make, "__qualname__", "")
        if not name.isidentifier():  # an exported model names it, to be built again
            raise ValueError(f"Built: {self.make!r} is no class or function at the top of a module")
        if not self.of:
            raise ValueError(f"Built({name}): of names no networks")
        for part, choice in self.of.items():
            if choice not in (Own(), Global(), Same()) and not isinstance(choice, Built):
                known = "Own(), Global(), Same(), Built(...)"
                raise ValueError(f"Built({name}): of.{part} = {choice!r}; it is one of {known}")

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the sub-modules that travel."""
        return (self.travels,) if isinstance(self.travels, str) else self.travels

    @property
    def inside(self) -> tuple[str, ...]:
        """Return those of its networks that travel by themselves."""
        return tuple(part for part in self.parts if part in self.of)

    @property
    def averaged(self) -> bool:
        """Return whether what travels is of a network that is averaged."""
        of = [choice for part, choice in self.of.items() if {"", part} & {path.split(".")[0] for path in self.parts}]
        return any(choice.averaged for choice in of)

    def models(self, name: str, offer: Offer) -> dict[str, Model]:
        parts = {part: choice.models(part, offer)[part] for part, choice in self.of.items()}
        travels = self.parts
        share: list[str] = []
        for travelling in travels:
            inner = parts[travelling].parts if travelling in parts else ("",)
            share += [f"{travelling}.{part}" if part else travelling for part in inner]
        # How buffers travel is said by the networks that travel.
        saying = [parts[part] for part in travels if part in parts] or list(parts.values())
        private = any(part.buffers == "private" for part in saying)
        build = Composite(self.make, {part: model.build for part, model in parts.items()})
        return {name: Model(build, tuple(share), "private" if private else "shared")}


@dataclass(frozen=True)
class Slice:
    """What a node can hold of the network that all have in common: `Slice(Narrow())`.

    The role that leads holds the whole. `share` and `buffers` say what travels, where it is not what the setting says.
    With `start="alike"` all begin with slices of one network.
    """

    cut: Cut
    start: Start = "different"
    share: tuple[str, ...] = ()
    buffers: Literal["shared", "private"] | None = None
    averaged: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_start(self)

    def models(self, name: str, offer: Offer) -> dict[str, Model]:
        return {name: offer.network("same")}

    def of(self, model: Model, own: Capacity, whole: Capacity) -> Model:
        """Return the slice of a model. A slice is cut anew from what it is a slice of."""
        given = uncut(model)
        cutting = Cutting(given.build, self.cut, own, whole, given)
        share, buffers = self.share or given.share, self.buffers or given.buffers
        common = given.common or self.start == "alike"
        return replace(given, build=cutting, share=share, buffers=buffers, common=common)


def uncut(model: Model) -> Model:
    """Return the whole that this model is a slice of, or the model itself."""
    return model.build.given if isinstance(model.build, Cutting) else model


@dataclass(frozen=True)
class Composite:
    """A factory that builds the parts in their order, and calls `make` with them by name."""

    make: Callable[..., nn.Module]
    parts: Mapping[str, Callable[[], nn.Module]]

    def __call__(self) -> nn.Module:
        parts = {name: build() for name, build in self.parts.items()}
        try:
            made = self.make(**parts)
        except ValueError:  # it says itself what does not fit
            raise
        except Exception as error:  # whatever a user's code does
            line = " ".join(fault.in_one_line(error).split())
            raise ValueError(f"Built({self.make.__name__}): the call failed ({line})") from error
        if not isinstance(made, nn.Module):
            raise ValueError(f"Built({self.make.__name__}) gave a {type(made).__name__}, not a torch.nn.Module")
        return made


NetworkChoice = Own | Global | Same | Architectures | Built | Slice
NetworksByRole = Mapping[str, Mapping[str, NetworkChoice]]  # by role, then by the model's name


def misfit(networks: Mapping[str, object], roles: tuple[str, ...]) -> str:
    """Return what is wrong with a method's `models`; empty if nothing is."""
    known = "Own(), Global(), Same(), Architectures(), Built(...), Slice(...)"
    for role, needed in networks.items():
        if role not in roles:
            return f"unknown role {role!r}; the roles are {', '.join(roles)}"
        if not isinstance(needed, Mapping):
            return f"{role} = {needed!r}; it is models by name, such as {{'model': Own()}}"
        for name, choice in needed.items():
            if not isinstance(choice, NetworkChoice):
                return f"{role}.{name} = {choice!r}; it is one of {known}"
    return ""


def checked(networks: NetworksByRole, roles: tuple[str, ...]) -> NetworksByRole:
    """Return the networks that a method asks for with its options; raise where they are no such values."""
    if wrong := misfit(networks, roles):
        raise ValueError(f"networks: {wrong}")
    return networks


def choose(needed: Mapping[str, NetworkChoice], offer: Offer) -> dict[str, Model]:
    """Return a node's models: what its role needs, of the networks that are offered."""
    found: dict[str, Model] = {}
    for name, choice in needed.items():
        found |= choice.models(name, offer)
    return found


def _check_start(choice: Own | Same | Slice) -> None:
    """Raise unless `start` is one of its words."""
    if choice.start not in get_args(Start):
        raise ValueError(f"{type(choice).__name__}: start is 'different' or 'alike', got {choice.start!r}")
