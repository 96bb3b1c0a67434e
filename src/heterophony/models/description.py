"""How a network was made, as plain values: they stand in run folders and exported models, to build it again.

A network of the registry is its name. One that was built from others is
`{"make": "heterophony.parts.spliced:Spliced", "of": {"small": "mlp", "own": "lenet5"}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from heterophony.base import imported
from heterophony.kernel.networks import Composite
from heterophony.models import registry

Description = str | Mapping[str, Any]
OURS = ("heterophony.models.", "heterophony.parts.")  # where our own classes are that build a network from others


def describe(build: Callable[[], nn.Module]) -> Description:
    """Return the description of a factory that was made of names: `partial(create, NAME, ...)`, or built from such."""
    if isinstance(build, Composite):
        make = f"{build.make.__module__}:{build.make.__qualname__}"
        return {"make": make, "of": {name: describe(part) for name, part in build.parts.items()}}
    if isinstance(build, partial) and build.func is registry.create:
        name: str = build.args[0]
        return name
    raise TypeError(f"{build!r} was not made of names")


def rebuild(description: Description, **shape: Any) -> nn.Module:
    """Return the network that is described, with new weights; `shape` as of `create`."""
    if isinstance(description, str):
        return registry.create(description, **shape)
    make, parts = _opened(description)
    if make.startswith(OURS):  # which nobody has to trust, so that a file may name nothing else of ours
        function = imported.function(make, "network")
        if not (isinstance(function, type) and issubclass(function, nn.Module)):
            raise ValueError(f"network {make!r} is no torch.nn.Module")
    return registry.called(make, **{name: rebuild(part, **shape) for name, part in parts.items()})


def imports(description: Description) -> list[str]:
    """Return what `rebuild` would import that is not ours."""
    if isinstance(description, str):
        return registry.imports(description)
    make, parts = _opened(description)
    theirs = [] if make.startswith(OURS) else [make]
    return [*theirs, *(name for part in parts.values() for name in imports(part))]


def reads(description: Description) -> str | None:
    """Return what the network reads, as `registry.reads` does; of one built from others, what its first part reads."""
    if isinstance(description, str):
        return registry.reads(description)
    _, parts = _opened(description)
    return reads(next(iter(parts.values())))


def shown(description: Description) -> str:
    """Return the description as people read it: `Spliced(mlp, lenet5)`."""
    if isinstance(description, str):
        return description
    make, parts = _opened(description)
    return f"{make.rpartition(':')[2]}({', '.join(shown(part) for part in parts.values())})"


def _opened(description: Any) -> tuple[str, dict[str, Description]]:
    """Return what builds the network, and its parts by name; raise if it is not written as we write it."""
    match description:
        case {"make": str(make), "of": dict(parts)} if parts and len(description) == 2:
            return make, parts
    raise ValueError(f"{description!r:.200} describes no network")
