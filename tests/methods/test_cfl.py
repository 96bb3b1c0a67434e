"""CFL, and the split in two that it takes: limits, golden toys, and those who are absent."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heterophony import Data, Dropout, Federation
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import CFL, FedAvg
from heterophony.parts.aggregate import mean
from heterophony.parts.bipartition import along, between, bipartition, cosines, products
from heterophony.parts.clusters import Cluster, Clusters
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import B16, METHODS, weights_star
from toys.watched import sent
from toys.world import certain, net

STEP = Training(batch=None, lr=0.5)


# -- the split -------------------------------------------------------------------------------------------------
@given(st.integers(2, 7), st.lists(st.integers(-4, 4), min_size=21, max_size=21))
def test_no_other_split_has_less_in_common_across(count, drawn):
    """By trying them all; small whole numbers, so that there are many ties."""
    similar = [[0] * count for _ in range(count)]
    for (i, j), value in zip(combinations(range(count), 2), drawn, strict=False):
        similar[i][j] = similar[j][i] = value

    def across(one):
        return max(similar[i][j] for i in one for j in range(count) if j not in one)

    one, other = bipartition(similar)
    assert sorted(one + other) == list(range(count))
    assert one[0] == 0
    assert other
    least = min(across(set(some)) for size in range(1, count) for some in combinations(range(count), size))
    assert across(set(one)) == least


def test_products_and_cosines_by_loops():
    generator = torch.Generator().manual_seed(0)
    start, *items = [
        {"a": torch.randn(2, 3, generator=generator), "b": torch.randn(4, generator=generator), "mean": torch.ones(2)}
        for _ in range(4)
    ]
    items.append(start)  # which has not moved
    moved = [
        [
            v - w
            for n in ("a", "b")
            for v, w in zip(item[n].flatten().tolist(), start[n].flatten().tolist(), strict=True)
        ]
        for item in items
    ]
    gram = products(items, start, ["a", "b"])
    for i, one in enumerate(moved):
        for j, other in enumerate(moved):
            dot = sum(v * w for v, w in zip(one, other, strict=True))
            size = math.hypot(*one) * math.hypot(*other)
            assert gram[i, j].item() == pytest.approx(dot, abs=1e-12)
            assert cosines(gram)[i, j].item() == pytest.approx(dot / size if size else 0.0, abs=1e-12)


# -- CFL -------------------------------------------------------------------------------------------------------
def numbers(ys, joins=None, copies=None, **options):
    """One number a model; client k holds one (x = 1, y = y_k), so that a step at rate 0.5 halves the way to y_k."""
    data = {
        f"c{i}": {"train": Data(x=torch.ones(n, 1), y=torch.full((n, 1), y))}
        for i, (y, n) in enumerate(zip(ys, copies or [1] * len(ys), strict=True))
    }
    models = {"server": {"model": scalar_net}, "client": {"model": scalar_net}}
    made = CFL(**{"eps1": 0.1, "eps2": 0.2, "local": STEP, "loss": squared, **options})
    return Federation(made, star(list(data)), models, data, joins=joins or {})


def clusters(result):
    found = result.state("server")["vars"]["clusters"]
    return [(cluster["members"], cluster["weights"]["weight"].item()) for cluster in found]


@pytest.mark.parametrize("options", [{}, {"weighted": False}, {"fraction": 0.67}])
@pytest.mark.parametrize("never", [{"eps1": 0.0}, {"eps1": 1e9, "eps2": 1e9}, {"eps1": 1e9, "eps2": 0.0, "gamma": 1.0}])
def test_without_a_split_cfl_is_fedavg(options, never):
    for build in (net(), certain):
        found = local(weights_star(CFL(local=B16, **never, cohort=Cohort(**options)), build)).run(3)
        plain = local(weights_star(FedAvg(local=B16, cohort=Cohort(**options)), build)).run(3)
        assert equal(server(found), server(plain))
        assert found.clock == plain.clock
        assert len(found.state("server")["vars"]["clusters"]) == 1


def test_after_its_split_every_cluster_is_fedavg_of_its_members():
    """At w = 0 the updates are 4, 4, -4, -4: the mean is 0, and the cosines across are -1."""
    found = local(numbers([8.0, -8.0, 8.0, -8.0])).run(3)
    assert clusters(found) == [(["c0", "c2"], 7.0), (["c1", "c3"], -7.0)]
    assert server(found)["weight"].item() == 7.0  # the first cluster's
    sizes = [(r["quantity"], r["sum"]) for r in found.table.last() if r["quantity"].endswith("size")]
    assert sorted(sizes) == [("cluster-0.size", 2.0), ("cluster-1.size", 2.0)]
    assert clusters(local(numbers([8.0, -8.0, 8.0, -8.0], gamma=1.0)).run(3)) == [(["c0", "c1", "c2", "c3"], 0.0)]


def test_golden_cfl_splits_again_when_its_parts_have_come_to_rest():
    """y = 3, 1, -1, -3. At 0 the mean update is 0 and the longest 3/2: {3, 1} and {-1, -3} part and go to 1 and -1,
    the mean of their own updates. From w the mean update of the first is (2 - w) / 2: 1/2, 1/4, 1/8 on the way over
    1.5, 1.75 to 1.875, and there 1/16 < eps1 while that of y = 3 is 9/16 > eps2. So they part once more, to
    1.875 + 9/16 = 2.4375 and 1.875 - 7/16 = 1.4375; then each is alone, and nobody parts from himself."""
    ys = [3.0, 1.0, -1.0, -3.0]
    expected = {
        1: [(["c0", "c1"], 1.0), (["c2", "c3"], -1.0)],
        4: [(["c0", "c1"], 1.875), (["c2", "c3"], -1.875)],
        5: [(["c0"], 2.4375), (["c2"], -1.4375), (["c1"], 1.4375), (["c3"], -2.4375)],
        6: [(["c0"], 2.71875), (["c2"], -1.21875), (["c1"], 1.21875), (["c3"], -2.71875)],
    }
    for rounds, known in expected.items():
        found = local(numbers(ys)).run(rounds)
        assert clusters(found) == known
    lengths = [r["sum"] for r in found.table.select(quantity="cluster-0.mean-update")]
    assert lengths == pytest.approx([0.0, 0.5, 0.25, 0.125, 0.0625])
    longest = [r["sum"] for r in found.table.select(quantity="cluster-0.longest-update")]
    assert longest == pytest.approx([1.5, 1.0, 0.75, 0.625, 0.5625])


def test_gamma_bounds_how_alike_the_nearest_of_both_parts_may_be():
    """Four clients pull a point of the plane to the four winds: the mean update is 0, and of any two parts some pair
    is at right angles, so that sqrt((1 - alpha) / 2) is sqrt(1/2)."""
    winds = {"c0": (8.0, 0.0), "c1": (0.0, 8.0), "c2": (-8.0, 0.0), "c3": (0.0, -8.0)}
    data = {c: {"train": Data(x=torch.eye(2), y=torch.tensor(wind).unsqueeze(1))} for c, wind in winds.items()}
    models = {role: {"model": plane} for role in ("server", "client")}
    for gamma, parts in ((0.0, 2), (0.7, 2), (0.71, 1), (0.9, 1)):
        method = CFL(eps1=0.1, eps2=0.2, gamma=gamma, local=STEP, loss=squared)
        found = local(Federation(method, star(list(winds)), models, data)).run(1)
        assert len(found.state("server")["vars"]["clusters"]) == parts


def plane():
    net = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(net.weight)
    return net


def test_lengths_are_of_parameters_by_loops():
    """Statistics of BatchNorm travel and are averaged, but are no updates."""
    made = weights_star(CFL(local=B16), certain)
    start, updates = sent(made, "global", 1)[0].weights, sent(made, "update", 1)
    names = [name for name, _ in certain().named_parameters()]

    def long(weights):
        ways = ((v, w) for n in names for v, w in zip(weights[n].flatten(), start[n].flatten(), strict=True))
        return math.hypot(*(float(v) - float(w) for v, w in ways))

    merged = mean([m.weights for m in updates], [m.examples for m in updates])
    noted = {row["quantity"]: row["sum"] for row in local(made).run(1).table.rows}
    assert noted["cluster-0.longest-update"] == pytest.approx(max(long(m.weights) for m in updates), rel=1e-5)
    assert noted["cluster-0.mean-update"] == pytest.approx(long(merged), rel=1e-5)
    assert set(start) > set(names)


def test_a_client_is_evaluated_with_the_model_that_its_cluster_has_come_to():
    """Before it trains: with what the server had after the last round."""
    rows = local(weights_star(CFL(local=B16))).run(2).table.select(quantity="accuracy").rows
    after = {(r["set"], r["split"]): r["sum"] for r in rows if r["product"] == "cluster-0" and r["round"] == 0}
    given = [r for r in rows if r["product"] == "cluster" and r["round"] == 1]
    assert len(given) == 3 * len(after) > 0
    assert all(r["sum"] == after[r["set"], r["split"]] for r in given)


def test_rest_is_of_the_mean_that_moves_the_model():
    """y = 4 once, y = -1 in four copies: by examples the mean update at 0 is 0, alike it is (2 - 1/2) / 2 = 3/4."""
    assert len(clusters(local(numbers([4.0, -1.0], copies=[1, 4])).run(1))) == 2
    alike = numbers([4.0, -1.0], copies=[1, 4], cohort=Cohort(weighted=False))
    assert clusters(local(alike).run(1)) == [(["c0", "c1"], 0.75)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lost", [{"fraction": 0.5}, {"dropout": Dropout(rate=0.2)}])
def test_whoever_was_not_heard_at_a_split_still_comes_to_its_own(seed, lost):
    """Two kinds of four each end as two clusters, whoever was asked when they parted, and whatever was lost."""
    made = numbers([8.0, -8.0] * 4, eps1=0.5, cohort=Cohort(fraction=lost.get("fraction", 1.0)))
    found = local(replace(made, seed=seed, dropout=lost.get("dropout", Dropout()))).run(40)
    parts = sorted(sorted(members) for members, _ in clusters(found))
    assert parts == [["c0", "c2", "c4", "c6"], ["c1", "c3", "c5", "c7"]]
    assert not found.state("server")["vars"]["waiting"]


def test_a_newcomer_goes_down_all_splits_and_counts_when_it_has_arrived():
    """The four of the golden toy have parted twice when others join: each ends with the one whose number is its own,
    and their clusters come the way that they come without them. Who never answers is in none."""
    ys, late = [3.0, 1.0, -1.0, -3.0], [3.0, -3.0, 1.0, -1.0]
    alone = clusters(local(numbers(ys)).run(14))
    made = numbers(ys + late, joins={f"c{i}": 0.01 for i in range(4, 8)}, cohort=Cohort(deadline=1.0))
    found = local(replace(made, egress={"c7": ()})).run(14)
    joined = {row["to"] for row in found.ledger.messages if row["round"] < 5 and row["kind"] == "global"}
    assert joined == {"c0", "c1", "c2", "c3"}  # they parted in rounds 0 and 4
    assert [weight for _, weight in clusters(found)] == [weight for _, weight in alone]
    assert [members for members, _ in clusters(found)] == [["c0", "c4"], ["c2"], ["c1", "c6"], ["c3", "c5"]]
    assert list(found.state("server")["vars"]["waiting"]) == ["c7"]
    told = [m.weights["weight"].item() for m in sent(made, "global", 14) if m.receiver == "c4"]
    assert told[:2] == [0.0, 1.875]  # where all parted, and where those above did
    assert min(told[2:]) > 2.4375


def test_whoever_joins_before_a_split_is_one_of_all():
    found, plain = (
        local(weights_star(method, joins={"c2": 0.06})).run(4)
        for method in (CFL(local=B16, eps1=0.0), FedAvg(local=B16))
    )
    assert equal(server(found), server(plain))
    assert [cluster["members"] for cluster in found.state("server")["vars"]["clusters"]] == [["c0", "c1", "c2"]]


def test_a_way_tells_by_the_smaller_angle():
    draw = torch.Generator().manual_seed(3)
    start, one, other, *items = [{"w": torch.randn(5, generator=draw, dtype=torch.float64)} for _ in range(40)]
    way, found = between(one, other, start, ["w"]), []
    for item in items:
        angles = [
            float(torch.cosine_similarity(item["w"] - start["w"], end["w"] - start["w"], 0)) for end in (one, other)
        ]
        found.append(angles[1] > angles[0])
        assert (along(item, start, way) > 0) is found[-1]
    assert {True, False} == set(found)
    assert along(start, start, between(start, start, start, ["w"])) == 0.0  # nobody has moved


def test_the_rows_of_the_conformance_table_do_split():
    for row in METHODS:
        if row.name.startswith("cfl"):
            result = local(row.build()).run(row.rounds)
            assert len(result.state("server")["vars"]["clusters"]) > 1


def test_options_out_of_range_are_refused():
    for bad in ({"eps1": -1.0}, {"eps2": math.nan}, {"gamma": 1.5}):
        with pytest.raises(ValueError, match="eps1 and eps2 are lengths >= 0 and gamma is in"):
            CFL(**bad)


def test_what_the_server_keeps_is_plain_and_read_again_as_it_was():
    federation = numbers([3.0, 1.0, -1.0, -3.0])
    state = local(federation).run(5).state("server")["vars"]
    node = federation.node("server")
    node.vars.update(state)
    known = Clusters.of(node)
    assert all(type(cluster) is Cluster for cluster in known.clusters)
    assert [(split.of, split.new) for split in known.splits] == [(0, 1), (0, 2), (1, 3)]
    known.keep(node)
    assert {name: node.vars[name] for name in state} == state
    assert all(type(item) is dict for name in ("clusters", "splits") for item in node.vars[name])
