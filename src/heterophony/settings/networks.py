"""Whose network is which: those that a setting names, or those that Python gave."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from heterophony.models import create
from heterophony.settings.participants import Network
from heterophony.settings.setting import Setting, SettingError
from heterophony.settings.world import World


@dataclass(frozen=True)
class ChosenNetworks:
    """The networks of a federation: participants' own, dealt round; the one that travels; the one that all have."""

    own: tuple[Network, ...]
    travelling: Network
    same: Network | None = None

    @classmethod
    def of(cls, setting: Setting, world: World) -> ChosenNetworks:
        """Return those that the setting names. If it names none, return those that the world brings."""
        part = setting.models
        own: tuple[Network, ...] = part.names or world.networks
        common = None if part.names else world.common
        return cls(own, part.global_ or common or own[0], part.same or common)

    @property
    def all(self) -> list[Network]:
        """Return each of them once."""
        named = [*self.own, self.travelling, *([] if self.same is None else [self.same])]
        return list({id(each) if not isinstance(each, str) else each: each for each in named}.values())


def called(network: Network) -> str:
    """Return a network's name, as people read it."""
    if isinstance(network, str):
        return network
    if isinstance(network, partial):
        return called(network.func)
    return str(getattr(network, "__qualname__", type(network).__name__))


def factory(
    network: Network, told: Mapping[str, Any], classes: int, start: Mapping[str, Any] | None = None
) -> Callable[[], nn.Module]:
    """Return what builds a network. A function or class is told of rows and classes what its arguments name.

    `start` says with which weights it begins and what is frozen, as `create` takes it.
    """
    start = start or {}
    if isinstance(network, str):
        return partial(create, network, **told, classes=classes, **start)
    wanted = set() if isinstance(network, nn.Module) else _asked(network)
    if wanted and (name := _name(network)):  # by which a run folder and an exported model can build it again
        return partial(create, name, **told, classes=classes, **start)
    if start:
        raise SettingError(f"models.{next(iter(start))} is for networks by name; {called(network)} says it itself")
    if isinstance(network, nn.Module):
        return partial(deepcopy, network)
    if not wanted:
        return network
    return partial(network, **{key: value for key, value in {**told, "classes": classes}.items() if key in wanted})


def _asked(network: Callable[..., nn.Module]) -> set[str]:
    """Return which of `shape` and `classes` a function wants to be told."""
    try:
        known = inspect.signature(network).parameters
    except (TypeError, ValueError):  # a callable that does not tell
        return set()
    given = set(network.keywords) if isinstance(network, partial) else set()
    return ({"shape", "classes"} & set(known)) - given


def _name(network: Callable[..., nn.Module]) -> str | None:
    """Return `module:name` of what stands at the top of a module; None: it does not."""
    module, name = getattr(network, "__module__", ""), getattr(network, "__qualname__", "")
    found = getattr(sys.modules.get(module), name, None)
    return f"{module}:{name}" if found is network and "shape" in _asked(found) else None
