"""Who is linked to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterophony.kernel.topology import (
    Links,
    complete,
    graph,
    of_peers,
    random_pairs,
    random_regular,
    ring,
    star,
    torus,
    tree,
)


def test_star():
    s = star(3)
    assert s.links("server").children == ("c0", "c1", "c2")
    assert s.links("c1") == Links(parent=("server",))
    assert s.roles == {"server": "server", "c0": "client", "c1": "client", "c2": "client"}


def test_peers():
    assert complete(3).links("p1").peers == ("p0", "p2")
    assert set(ring(4).links("p0").peers) == {"p1", "p3"}
    assert graph([("a", "b"), ("b", "c")]).links("b").peers == ("a", "c")
    assert ring(2).links("p0").peers == ("p1",)
    assert ring(1).links("p0").peers == ()
    with pytest.raises(ValueError, match="'a' twice"):
        graph([("a", "b"), ("a", "a")])


@given(st.integers(1, 9), st.integers(0, 50), st.integers(0, 5))
def test_random_pairs_are_a_matching_in_every_round(n, round, seed):
    topology = random_pairs(n)
    partner = {p: topology.links(p, round, seed).peers for p in topology.roles}
    alone = [p for p, peers in partner.items() if not peers]
    assert len(alone) == n % 2
    assert all(partner[q] == (p,) for p, peers in partner.items() for q in peers)


def test_random_pairs_change():
    topology = random_pairs(6)
    assert len({topology.links("p0", r).peers for r in range(20)}) > 2


SPEC = {"root": {"e0": ["l0", "l1"], "e1": {"m": ["l2"]}}}


def test_tree_with_residual_links():
    t = tree(SPEC, [("root", "l0"), ("root", "m"), ("e1", "l2")])
    assert t.roles == {
        "root": "root",
        "e0": "inner",
        "l0": "leaf",
        "l1": "leaf",
        "e1": "inner",
        "m": "inner",
        "l2": "leaf",
    }
    assert t.links("root").descendants == ("l0", "m")
    assert t.links("l0").ancestors == ("root",)
    assert t.route("l0", "root") == ("l0", "e0", "root")
    assert t.route("e1", "l2") == ("e1", "m", "l2")
    assert t.route("root", "e0") == ("root", "e0")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tree({"a": [], "b": []}), "one root"),
        (lambda: tree({"a": ["b", "b"]}), "twice"),
        (lambda: tree(SPEC, [("e0", "e0")]), "two nodes"),
        (lambda: tree(SPEC, [("root", "m"), ("root", "m")]), "once"),
        (lambda: tree(SPEC, [("root", "x")]), "no node 'x'"),
        (lambda: tree(SPEC, [("e0", "l2")]), "not above"),
        (lambda: star(["a", "a"]), "different"),
        (lambda: star(["a/b"]), "letters, digits"),
        (lambda: star(0), "at least one"),
    ],
)
def test_mistakes_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_membership_is_by_link():
    links = star(3).links("server")
    assert links.has("children", "c2")
    assert not links.has("peers", "c2")
    assert not links.has("children", "c9")
    assert links.without({"c1"}).children == ("c0", "c2")


def near_each(topology, round=0):
    return {node: set(topology.links(node, round).peers) for node in topology.roles}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 9, 12])
def test_a_torus_links_everyone_alike(n):
    near = near_each(torus(n))
    assert len(near) == n
    assert all(node in near[other] and node != other for node, others in near.items() for other in others)
    degrees = {len(others) for others in near.values()}
    assert degrees == {{1: 0, 2: 1, 3: 2, 4: 2, 5: 2, 6: 3, 9: 4, 12: 4}[n]}


@given(st.integers(3, 12), st.integers(2, 11), st.integers(0, 20), st.booleans())
def test_random_regular_graphs_have_one_degree(n, degree, seed, anew):
    if degree >= n or n * degree % 2:
        with pytest.raises(ValueError, match=f"each of {n} peers"):
            random_regular(n, degree, seed, anew=anew)
        return
    topology = random_regular(n, degree, seed, anew=anew)
    for round in (0, 5):
        near = near_each(topology, round)
        assert all(len(others) == degree and node not in others for node, others in near.items())
        assert all(node in near[other] for node, others in near.items() for other in others)
    assert anew or near_each(topology, 0) == near_each(topology, 5)


def test_a_regular_graph_that_stays_joins_everyone_and_one_that_is_drawn_changes():
    for seed in range(20):
        near = near_each(random_regular(8, 2, seed))
        reached, new = {"p0"}, {"p0"}
        while new:
            new = {other for node in new for other in near[node]} - reached
            reached |= new
        assert len(reached) == 8
    anew = random_regular(8, 3, anew=True)
    assert len({anew.links("p0", round).peers for round in range(20)}) > 5
    assert not anew.complete
    assert complete(8).complete


def test_topologies_of_peers_by_name():
    names = ["a", "b", "c", "d", "e", "f"]
    assert of_peers("torus", names) == torus(names)
    assert of_peers("pairs", names) == random_pairs(names)
    assert of_peers("regular", names, 3, seed=4) == random_regular(names, 3, seed=4)
    assert of_peers("regular", names, 3, seed=4) != random_regular(names, 3, seed=5)
    assert of_peers("regular-anew", names, 4).drawn == 4
