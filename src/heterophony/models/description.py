"""How a network was made, as plain values: they stand in run folders and exported models, to build it again.

A network of the registry is its name. One that was built from others is
`{"make": "heterophony.parts.spliced:Spliced", "of": {"small": "mlp", "own": "lenet5"}}`.
What a function, or a class, at the top of somebody's own module makes is
`{"make": "mine:Net", "of": {}, "with": {"width": 32}}`.
A slice has `"cut"` in the place of `"make"`, and its capacity. What has no name, such as a lambda, is
`{"unnamed": "<lambda>"}`: nobody can build it again but the function that made it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import nn

from heterophony.base import imported
from heterophony.kernel.capacity import Capacity, Cutting
from heterophony.kernel.networks import Composite
from heterophony.models import registry

Description = str | Mapping[str, Any]
OURS = ("heterophony.models.", "heterophony.parts.")  # where our own classes are that build a network from others


def describe(build: Callable[[], nn.Module]) -> Description:
    """Return the description of a factory: of one made of names, `partial(create, NAME, ...)`, or built from such."""
    if isinstance(build, Composite):
        make = f"{build.make.__module__}:{build.make.__qualname__}"
        return {"make": make, "of": {name: describe(part) for name, part in build.parts.items()}}
    if isinstance(build, Cutting):
        cut = build.cut
        make = f"{type(cut).__module__}:{type(cut).__qualname__}"
        capacities = {"own": asdict(build.own), "whole": asdict(build.whole)}
        return {
            "cut": make,
            "of": {"whole": describe(build.build)},
            "with": {key: _listed(value) for key, value in vars(cut).items()},
            **capacities,
        }
    if isinstance(build, partial) and build.func is registry.create:
        name: str = build.args[0]
        return name
    return _own(build)


def _own(build: Callable[..., nn.Module]) -> Description:
    """Return the description of somebody's own factory: its name and plain arguments, if it can be told by these."""
    make, told = (build.func, build.keywords) if isinstance(build, partial) and not build.args else (build, {})
    module, name = getattr(make, "__module__", ""), getattr(make, "__qualname__", "")
    at_top = name.isidentifier() and getattr(sys.modules.get(module), name, None) is make and module != "__main__"
    try:
        if at_top and json.loads(json.dumps(told)) == {key: _listed(value) for key, value in told.items()}:
            return {"make": f"{module}:{name}", "of": {}, "with": dict(told)}
    except TypeError:  # an argument that no file can hold
        pass
    return {"unnamed": name.rpartition(".")[2] or type(make).__name__}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def rebuild(description: Description, **shape: Any) -> nn.Module:
    """Return the network that is described, with new weights; `shape` as of `create`."""
    if isinstance(description, str):
        return registry.create(description, **shape)
    make, parts, told = _opened(description)
    if "cut" in description:
        return _cut(description, rebuild(parts["whole"], **shape))
    if make.startswith(OURS):  # which nobody has to trust, so that a file may name nothing else of ours
        function = imported.function(make, "network")
        if not (isinstance(function, type) and issubclass(function, nn.Module)):
            raise ValueError(f"network {make!r} is no torch.nn.Module")
    return registry.called(make, **{name: rebuild(part, **shape) for name, part in parts.items()}, **told)


def _cut(description: Mapping[str, Any], whole: nn.Module) -> nn.Module:
    """Return the slice that is described."""
    kind: Any = imported.function(description["cut"], "network")
    if not (isinstance(kind, type) and getattr(kind, "cuts", False)):
        raise ValueError(f"network {description['cut']!r} cuts no slices")
    capacities = Capacity(**description["own"]), Capacity(**description["whole"])
    made: nn.Module = kind(**description["with"])(whole, *capacities)
    return made


def buildable(description: Description) -> None:
    """Raise where a network was made of something that has no name, so that `rebuild` cannot make it."""
    if not isinstance(description, str):
        _, parts, _ = _opened(description)
        for part in parts.values():
            buildable(part)


def imports(description: Description) -> list[str]:
    """Return what `rebuild` would import that is not ours."""
    if isinstance(description, str):
        return registry.imports(description)
    make, parts, _ = _opened(description)
    theirs = [] if make.startswith(OURS) else [make]
    return [*theirs, *(name for part in parts.values() for name in imports(part))]


def reads(description: Description) -> str | None:
    """Return what the network reads, as `registry.reads` does; of one built from others, what its first part reads."""
    if isinstance(description, str):
        return registry.reads(description)
    _, parts, _ = _opened(description)
    return reads(next(iter(parts.values()))) if parts else None


def shown(description: Description) -> str:
    """Return the description as people read it: `Spliced(mlp, lenet5)`."""
    if isinstance(description, str):
        return description
    if unnamed := description.get("unnamed"):
        return str(unnamed)
    make, parts, _ = _opened(description)
    name = make.rpartition(":")[2]
    return f"{name}({', '.join(shown(part) for part in parts.values())})" if parts else name


def _opened(description: Any) -> tuple[str, dict[str, Description], dict[str, Any]]:
    """Return what builds the network, its parts by name, and plain arguments; raise if it is not as we write it."""
    match description:
        case {"make": str(make), "of": dict(parts)} if parts and len(description) == 2:
            return make, parts, {}
        case {"make": str(make), "of": {}, "with": dict(told)} if len(description) == 3 and not description["of"]:
            return make, {}, told
        case {"cut": str(make), "of": {"whole": whole}, "with": dict(told), "own": dict(), "whole": dict()}:
            return make, {"whole": whole}, told
        case {"unnamed": str(name)}:
            raise ValueError(
                f"network {name!r} has no name by which it can be built again: give a function, or a class, that "
                "stands at the top of a module"
            )
    raise ValueError(f"{description!r:.200} describes no network")
