"""What must be alike where networks may differ: the weights that travel between models which a method averages."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from heterophony.base.seeds import seeded
from heterophony.kernel.fields import Part, Shape, Weights
from heterophony.kernel.method import Method
from heterophony.kernel.networks import Built, Composite, Model, checked, uncut
from heterophony.kernel.node import Slot

NAMED = 3  # nodes of one shape that are named


class Unlike(NamedTuple):
    """Weights that travel and have different shapes."""

    line: str  # which weights, of which shape at which node
    width: int  # the largest value of the method's option `width` that would make them alike; 0: none


def unlike(method: Method, models: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Unlike | None:
    """Compare what travels of all networks that the method wants alike; nothing is built where there is one only.

    `models` has, by node, its role and its networks by slot.
    """
    found = _networks(method, models)
    for kind in method.sends() if len(found) > 1 else ():
        for field in kind.fields.values():
            if not isinstance(field, Weights) or field.model is None:
                continue
            shapes: dict[str, dict[str, tuple[int, ...]]] = {}
            for nodes, model, inside in found.values():
                held = Shape({field.model: _form(model, inside)}, setting=method.setting)
                wanted = field.wanted(held) or {}
                shapes[_owners(nodes)] = {name: shape for name, (shape, _) in wanted.items()}
            apart = _apart(shapes)
            if apart:
                return Unlike(apart, _width(method, field, shapes.values()))
    return None


def _owners(nodes: list[str]) -> str:
    """Return the names of the first nodes, and how many there are besides."""
    named = ", ".join(nodes[:NAMED])
    return f"{named} and {len(nodes) - NAMED} more" if len(nodes) > NAMED else named


class _Found(NamedTuple):
    """A network that is to be as all others."""

    nodes: list[str]  # who has it
    model: Any
    inside: tuple[str, ...]  # of a built network, the names of those in it that all have in common


def _networks(method: Method, models: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[Hashable, _Found]:
    """Return each network that is to be as all others, and the nodes that have it."""
    wanted = checked(method.networks(), method.roles)
    found: dict[Hashable, _Found] = {}
    for node, (role, given) in models.items():
        for slot, choice in wanted.get(role, {}).items():
            if choice.averaged and slot in given:
                model = (
                    uncut(given[slot]) if isinstance(given[slot], Model) else given[slot]
                )  # slices are of one network
                inside = choice.inside if isinstance(choice, Built) else ()
                nodes = found.setdefault((_key(model), inside), _Found([], model, inside)).nodes
                if node not in nodes[-1:]:
                    nodes.append(node)
    return found


def _key(model: Any) -> Hashable:
    """Return a key that is equal for factories that are one object, or one function of the same arguments."""
    return _made(model.build if isinstance(model, Model) else model), *_travels(model)


def _made(build: Any) -> Hashable:
    """Return a key of a factory alone."""
    if isinstance(build, Composite):
        return build.make, tuple((name, _made(part)) for name, part in build.parts.items())
    if isinstance(build, partial):
        given = (*build.args, *build.keywords.values())
        if all(isinstance(value, Hashable) for value in given):
            return build.func, build.args, tuple(sorted(build.keywords.items()))
    return id(build)


def _travels(model: Any) -> tuple[tuple[str, ...], str, str]:
    """Return which parts travel, and whether buffers and BatchNorm do: as `Model` says, or all."""
    return (model.parts, model.buffers, model.norms) if isinstance(model, Model) else (("",), "shared", "shared")


def _form(model: Any, inside: tuple[str, ...]) -> Mapping[str, Any]:
    """Return shapes and dtypes of what travels of a network, which is built for it.

    What is `inside` has the names that it has by itself, as at the nodes that have nothing else.
    """
    if isinstance(model, nn.Module):
        form = Slot(model).form
    else:
        with seeded("only to see what travels"):
            module = model.build() if isinstance(model, Model) else model()
        form = Slot(module, *_travels(model)).form
    return {_by_itself(name, inside): said for name, said in form.items()}


def _by_itself(name: str, inside: tuple[str, ...]) -> str:
    """Return the name that a weight has without the network that it is in."""
    return next((name.removeprefix(f"{part}.") for part in inside if name.startswith(f"{part}.")), name)


def _width(method: Method, field: Weights, shapes: Iterable[Mapping[str, tuple[int, ...]]]) -> int:
    """Return the fewest features that a travelling head reads; 0 where heads differ in something else too."""
    if not (isinstance(field, Part) and field.width and method.setting(field.part) == "head"):
        return 0
    heads = [own.get("head.weight", ()) for own in shapes]  # by shape: outputs, features
    same_outputs = len({head[:1] for head in heads}) == 1
    if not same_outputs or any(len(head) != 2 for head in heads):
        return 0
    return min(head[1] for head in heads)


def _apart(shapes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> str:
    """Say which weights, the first such, are not of one shape at all owners; nothing if all are."""
    names: dict[str, None] = {}
    for own in shapes.values():
        names |= dict.fromkeys(own)
    for name in names:
        by_shape: dict[tuple[int, ...] | None, list[str]] = {}
        for owner, own in shapes.items():
            by_shape.setdefault(own.get(name), []).append(owner)
        if len(by_shape) > 1:
            said = [f"{_size(shape)} at {', '.join(owners)}" for shape, owners in by_shape.items()]
            return f"{name} is {', '.join(said[:-1])} and {said[-1]}"
    return ""


def _size(shape: tuple[int, ...] | None) -> str:
    """Return a shape in words."""
    if shape is None:
        return "missing"
    return " x ".join(map(str, shape)) or "one number"
