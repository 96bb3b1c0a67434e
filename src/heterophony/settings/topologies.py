"""Who is linked to whom: the topology that a method's roles need, with what the setting says of it."""

from __future__ import annotations

from collections.abc import Sequence

from heterophony.kernel.method import Method
from heterophony.kernel.topology import Topology, form_of_roles, graph, of_peers, star
from heterophony.settings import trees
from heterophony.settings.setting import Setting, SettingError, TopologyPart
from heterophony.settings.world import World


def build(name: str, method: Method, setting: Setting, world: World, seed: int) -> Topology:
    """Return the topology of a setting's participants for a method, which users know by this name."""
    participants, part = list(world.homes), setting.topology
    needed = form_of_roles(method.roles)
    if part.kind is not None and (part.kind == "tree") != (needed == "tree"):
        raise SettingError(f"topology.kind = {part.kind!r} does not go with {name}, which needs a {needed}")
    if needed == "tree":
        return trees.grow(part, world, seed)
    if needed == "star":
        if part.kind is not None:
            raise SettingError(f"topology.kind = {part.kind!r} is for methods without a server; {name} has one")
        return star(participants)
    if method.roles == ("peer",):
        return _peers(part, participants, seed)
    raise SettingError(f"{type(method).__name__} needs a topology of its own (roles {', '.join(method.roles)})")


def _peers(part: TopologyPart, participants: Sequence[str], seed: int) -> Topology:
    """Return peers linked by a rule (`of_peers`), or as the setting's edges say."""
    if part.kind != "edges":
        try:
            return of_peers(part.kind or "complete", participants, part.degree, seed)
        except ValueError as error:
            raise SettingError(f"topology: {error}") from None
    linked = {end for edge in part.edges for end in edge}
    if odd := sorted(linked ^ set(participants)):
        what = "is on no edge" if odd[0] in participants else "is no participant"
        raise SettingError(f"topology.edges: {odd[0]} {what}; the participants are {', '.join(participants)}")
    return graph(part.edges)
