"""Who is linked to whom: star, peers, trees, residual links."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from heterophony.base.seeds import derive


def form_of_roles(roles: Collection[str]) -> Literal["tree", "star", "graph of peers"]:
    """Return which form of topology a method's roles make up. It goes by the role that leads."""
    if "root" in roles:
        return "tree"
    return "star" if "server" in roles else "graph of peers"


@dataclass(frozen=True)
class Links:
    """A node's neighbours. `ancestors` and `descendants` are only the other ends of its residual links."""

    parent: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    ancestors: tuple[str, ...] = ()
    descendants: tuple[str, ...] = ()

    @cached_property
    def _sets(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(self.group(name)) for name in self.__dataclass_fields__}

    def group(self, name: str) -> tuple[str, ...]:
        """Return the nodes at the other ends of a link."""
        found: tuple[str, ...] = getattr(self, name)
        return found

    def has(self, name: str, node: str) -> bool:
        """Return whether `node` is at the other end of a link, in a time that does not grow with their number."""
        return node in self._sets[name]

    def without(self, nodes: set[str]) -> Links:
        """Return the links as they are while `nodes` have not joined yet."""
        kept: dict[str, tuple[str, ...]] = {}
        for name in self.__dataclass_fields__:
            kept[name] = tuple(node for node in self.group(name) if node not in nodes)
        return Links(**kept)


@dataclass(frozen=True)
class Topology:
    """Roles and links of all nodes. With `drawn`, each peer is linked with so many others, drawn anew each round."""

    roles: Mapping[str, str]
    static: Mapping[str, Links] = field(repr=False)
    drawn: int = 0

    def __post_init__(self) -> None:
        check_names(self.roles)

    def links(self, node: str, round: int = 0, seed: int = 0) -> Links:
        """Return a node's links in a round. Only links that are drawn depend on round and seed."""
        if not self.drawn:
            return self.static[node]
        if self.drawn == 1:
            partner = _matching(tuple(self.roles), seed, round).get(node)
            return Links(peers=() if partner is None else (partner,))
        return Links(peers=_drawn_anew(tuple(self.roles), self.drawn, seed, round)[node])

    @property
    def complete(self) -> bool:
        """Return whether every peer is linked with every other in all rounds."""
        return not self.drawn and all(len(own.peers) == len(self.static) - 1 for own in self.static.values())

    @property
    def digest(self) -> str:
        """Return a hash of who is linked to whom."""
        drawn = bool(self.drawn) if self.drawn < 2 else self.drawn
        # It is that of repr((drawn, sorted(self.static.items()))), of which many parts are the same.
        texts = {id(links): repr(links) for links in self.static.values()}
        whole = hashlib.sha256(f"({drawn!r}, [".encode())
        between = ""
        for node in sorted(self.static):
            whole.update(f"{between}({node!r}, {texts[id(self.static[node])]})".encode())
            between = ", "
        whole.update(b"])")
        return whole.hexdigest()[:16]

    def route(self, sender: str, receiver: str) -> tuple[str, ...]:
        """Return the nodes that a message passes, both ends included. Residual links use the tree's own edges."""
        links = self.static[sender]
        if receiver in links.ancestors:
            return tuple(self._upwards(sender, receiver))
        if receiver in links.descendants:
            return tuple(reversed(self._upwards(receiver, sender)))
        return (sender, receiver)

    def path(self, node: str) -> tuple[str, ...]:
        """Return a node and all above it, the root last."""
        path = [node]
        while above := self.static[path[-1]].parent:
            path.append(above[0])
        return tuple(path)

    def level(self, node: str) -> int:
        """Return how many nodes are above one: 0 for the root, a server, and peers."""
        return len(self.path(node)) - 1

    def names(self, node: str) -> tuple[str, str, str]:
        """Return what a table of values may call a node: its id, its level and its role."""
        return node, str(self.level(node)), self.roles[node]

    def _upwards(self, node: str, ancestor: str) -> list[str]:
        """Return the nodes from one up to another, both included."""
        path = [node]
        while path[-1] != ancestor:
            above = self.static[path[-1]].parent
            if not above:
                raise ValueError(f"{ancestor} is not above {node} in the tree")
            path.append(above[0])
        return path

    def with_residuals(self, pairs: Iterable[tuple[str, str]]) -> Topology:
        """Return the same tree with residual links, each given as (ancestor, descendant).

        A link between neighbours makes sense on the way up: it takes single children's updates past the average.
        """
        static = dict(self.static)
        for upper, lower in pairs:
            for end in (upper, lower):
                if end not in static:
                    raise ValueError(f"a residual link from {upper} to {lower}: there is no node {end!r}")
            if len(self._upwards(lower, upper)) < 2 or lower in static[upper].descendants:
                raise ValueError(f"a residual link joins two nodes once, got {upper} and {lower}")
            static[upper] = replace(static[upper], descendants=(*static[upper].descendants, lower))
            static[lower] = replace(static[lower], ancestors=(*static[lower].ancestors, upper))
        return replace(self, static=static)


@lru_cache(maxsize=8)
def _matching(nodes: tuple[str, ...], seed: int, round: int) -> dict[str, str]:
    """Draw the random pairs of a round: each node's partner."""
    everyone = list(nodes)
    random.Random(derive(seed, "pairs", round)).shuffle(everyone)
    pairs = list(zip(everyone[::2], everyone[1::2], strict=False))
    return dict(pairs) | {b: a for a, b in pairs}


@lru_cache(maxsize=8)
def _drawn_anew(nodes: tuple[str, ...], degree: int, seed: int, round: int) -> dict[str, tuple[str, ...]]:
    """Draw the links of a round: each node's neighbours."""
    draw = random.Random(derive(seed, "links", round))
    return _neighbours(nodes, _regular(len(nodes), degree, draw))


def _regular(count: int, degree: int, draw: random.Random) -> set[tuple[int, int]]:
    """Draw edges between so many nodes, so that each is on `degree` of them: ends are paired until all fit."""
    everything = {(a, b) for b in range(count) for a in range(b)}
    if 2 * degree >= count:  # few edges are missing, so these are drawn
        return everything - _regular(count, count - 1 - degree, draw)
    while True:
        edges: set[tuple[int, int]] = set()
        ends = list(range(count)) * degree
        before = -1
        while ends and len(ends) != before:  # no pair fits any more: begin anew
            before = len(ends)
            draw.shuffle(ends)
            left: list[int] = []
            for pair in zip(ends[::2], ends[1::2], strict=True):
                edge = min(pair), max(pair)
                if edge in edges or edge not in everything:
                    left += pair
                else:
                    edges.add(edge)
            ends = left
        if not ends:
            return edges


def _neighbours(nodes: Sequence[str], edges: Iterable[tuple[int, int]]) -> dict[str, tuple[str, ...]]:
    """Return each node's neighbours, in the order of the nodes."""
    near: dict[int, list[int]] = {i: [] for i in range(len(nodes))}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    return {nodes[i]: tuple(nodes[j] for j in sorted(others)) for i, others in near.items()}


def check_names(nodes: Iterable[str]) -> None:
    """Raise unless these can be ids of nodes, and so names of folders."""
    for node in nodes:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", node):
            raise ValueError(f"node id {node!r}: use letters, digits, '.', '_' and '-'")


def _ids(nodes: int | Sequence[str], prefix: str) -> tuple[str, ...]:
    """Return these ids, or so many of our own; raise unless they are different."""
    ids = tuple(f"{prefix}{i}" for i in range(nodes)) if isinstance(nodes, int) else tuple(nodes)
    if len(set(ids)) != len(ids) or not ids:
        raise ValueError(f"node ids must be different and at least one, got {list(ids)[:5]}")
    return ids


def star(clients: int | Sequence[str], server: str = "server") -> Topology:
    """Make a topology of one server and many clients."""
    ids = _ids(clients, "c")
    if server in ids:
        raise ValueError(f"a client cannot be called {server!r}: that is the server")
    roles = {server: "server", **dict.fromkeys(ids, "client")}
    own = Links(parent=(server,))  # one object for all clients: a million would take more than their names
    return Topology(roles, {server: Links(children=ids), **dict.fromkeys(ids, own)})


def complete(peers: int | Sequence[str]) -> Topology:
    """Make a topology without a server in which everyone talks to everyone."""
    ids = _ids(peers, "p")
    static = {own: Links(peers=tuple(other for other in ids if other != own)) for own in ids}
    return Topology(dict.fromkeys(ids, "peer"), static)


def graph(edges: Iterable[tuple[str, str]]) -> Topology:
    """Make a topology of peers on the given undirected edges."""
    near: dict[str, list[str]] = {}
    for a, b in edges:
        if a == b:
            raise ValueError(f"an edge joins two different peers, got {a!r} twice")
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    ids = sorted(near)
    static = {node: Links(peers=tuple(dict.fromkeys(near[node]))) for node in ids}
    return Topology(dict.fromkeys(ids, "peer"), static)


def ring(peers: int | Sequence[str]) -> Topology:
    """Make a topology in which everyone talks to two neighbours."""
    ids = _ids(peers, "p")
    if len(ids) < 3:
        return complete(ids)
    return graph((ids[i], ids[(i + 1) % len(ids)]) for i in range(len(ids)))


def random_pairs(peers: int | Sequence[str]) -> Topology:
    """Make a topology of peers that are matched in pairs, anew each round. With an odd number, one stays alone."""
    return replace(complete(peers), drawn=1)


def torus(peers: int | Sequence[str]) -> Topology:
    """Make a grid of peers whose edges meet: everyone talks to four neighbours, where the grid is three wide or more.

    It is as near to a square as their number allows. A prime number gives a ring.
    """
    ids = _ids(peers, "p")
    if len(ids) < 3:
        return complete(ids)
    rows = max(r for r in range(1, math.isqrt(len(ids)) + 1) if len(ids) % r == 0)
    columns = len(ids) // rows
    edges = []
    for i in range(len(ids)):
        right, down = i - i % columns + (i + 1) % columns, (i + columns) % len(ids)
        edges += [(ids[i], ids[other]) for other in (right, down) if other != i]
    return graph(edges)


def random_regular(peers: int | Sequence[str], degree: int = 3, seed: int = 0, *, anew: bool = False) -> Topology:
    """Make a topology in which everyone talks to `degree` others, drawn at random once, or (`anew`) each round.

    Links that stay join all peers, by way of others.
    """
    ids = _ids(peers, "p")
    if not 2 <= degree < len(ids) or degree * len(ids) % 2:
        raise ValueError(
            f"each of {len(ids)} peers talks to `degree` others: a number from 2 to {len(ids) - 1}, even if the number "
            f"of peers is odd; got {degree}"
        )
    if anew:
        return replace(complete(ids), drawn=degree)
    draw = random.Random(derive(seed, "regular"))
    while True:
        near = _neighbours(ids, _regular(len(ids), degree, draw))
        reached, new = {ids[0]}, {ids[0]}
        while new:
            new = {other for node in new for other in near[node]} - reached
            reached |= new
        if len(reached) == len(ids):
            return Topology(dict.fromkeys(ids, "peer"), {node: Links(peers=others) for node, others in near.items()})


def of_peers(kind: str, peers: Sequence[str], degree: int = 3, seed: int = 0) -> Topology:
    """Make the topology of peers that a setting, or a plan, names (`PeerKind`)."""
    if kind.startswith("regular"):
        return random_regular(peers, degree, seed, anew=kind == "regular-anew")
    return {"complete": complete, "ring": ring, "torus": torus, "pairs": random_pairs}[kind](peers)


def names_below(node: str, below: Any) -> tuple[str, ...]:
    """Return the children of a node of a nested spec. `below` may be None where there are none."""
    fits = isinstance(below, Mapping | list | tuple | None)
    if not fits or not all(isinstance(child, str) for child in below or ()):
        raise ValueError(f"below {node!r} there is a list of names or a table, got {below!r:.80}")
    return tuple(below or ())


def tree(spec: Mapping[str, Any], residuals: Iterable[tuple[str, str]] = ()) -> Topology:
    """Make a tree from a nested spec, such as `{"root": {"e0": ["l0", "l1"], "e1": ["l2"]}}`."""
    if len(spec) != 1:
        raise ValueError(f"a tree has one root, got {list(spec)}")
    roles: dict[str, str] = {}
    static: dict[str, Links] = {}
    leaves: dict[tuple[str, ...], Links] = {}  # by their parent: those of one have the same links

    def grow(node: str, below: Any, above: tuple[str, ...]) -> None:
        if node in roles:
            raise ValueError(f"node {node!r} stands in the tree twice")
        children = names_below(node, below)
        if not children:
            roles[node] = "leaf"
        else:
            roles[node] = "inner" if above else "root"
        static[node] = Links(parent=above, children=children) if children else leaves.setdefault(above, Links(above))
        for child in children:
            grow(child, below[child] if isinstance(below, Mapping) else (), (node,))

    ((root, below),) = spec.items()
    grow(root, below, ())
    return Topology(roles, static).with_residuals(residuals)
