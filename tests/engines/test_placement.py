"""Nodes on workers by cost: the dear ones apart, nobody moved for nothing."""

from hypothesis import given
from hypothesis import strategies as st

from heterophony.engines.placement import MOVE, SLACK, Placement


def placed(costs):
    made = Placement()
    for node, seconds in costs.items():
        made.observe((node, "train"), seconds)
    return made


def loads(made, costs, busy):
    tasks = [(node, "train") for node in costs]
    chosen = made.deal(tasks, busy)
    found = dict(busy)
    for node, worker in zip(costs, chosen, strict=True):
        found[worker] += costs[node]
    return dict(zip(costs, chosen, strict=True)), found


def test_a_big_one_does_not_starve_the_small_ones():
    costs = {"big": 8.0, **{f"small{i}": 1.0 for i in range(8)}}
    where, _ = loads(placed(costs), costs, {0: 0.0, 1: 0.0})
    assert {where[node] for node in costs if node != "big"} == {1 - where["big"]}


def test_before_anything_was_timed_parameters_times_rows_decide():
    made = Placement()
    made.sizes = {"big": 1e6, "a": 1e3, "b": 1e3, "c": 1e3}
    where = dict(zip(made.sizes, made.deal([(node, "train") for node in made.sizes], {0: 0, 1: 0}), strict=True))
    assert {where[node] for node in "abc"} == {1 - where["big"]}


def test_what_was_timed_says_what_the_others_will_take():
    made = Placement()
    made.sizes = {"seen": 100.0, "new": 300.0}
    made.observe(("seen", "train"), 2.0)
    assert made.cost(("new", "train")) == 6.0


def test_a_node_stays_at_home_unless_moving_pays():
    costs = {"a": 1.0, "b": 1.0, "c": MOVE / 2, "d": MOVE / 2}
    made = placed(costs)
    made.homes = {"a": 0, "b": 1, "c": 0, "d": 0}
    where, _ = loads(made, costs, {0: 0.0, 1: 0.0})
    assert where == made.homes
    made.homes = dict.fromkeys(costs, 0)
    where, _ = loads(made, costs, {0: 0.0, 1: 0.0})
    assert where["a"] != where["b"]


def test_what_workers_have_already_counts():
    costs = {"a": 1.0, "b": 1.0}
    where, _ = loads(placed(costs), costs, {0: 5.0, 1: 0.0})
    assert set(where.values()) == {1}


def test_the_homes_of_a_dead_worker_are_given_away():
    made = Placement()
    made.settle(["a", "b", "c", "d"], {0, 1})
    assert sorted(made.homes.values()) == [0, 0, 1, 1]
    made.abandon(0)
    made.settle(["a", "b", "c", "d"], {1, 2})
    assert sorted(made.homes.values()) == [1, 1, 2, 2]


@given(
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=20),
    st.integers(1, 5),
    st.data(),
)
def test_no_worker_gets_much_more_than_its_share(seconds, workers, data):
    """Greedy from the dearest down: nobody has more than a share, the slack, one task and what is not worth a move."""
    costs = {f"n{i}": s for i, s in enumerate(seconds)}
    made = placed(costs)
    made.homes = {node: data.draw(st.integers(0, workers)) for node in costs}  # some of a worker that is gone
    where, found = loads(made, costs, dict.fromkeys(range(workers), 0.0))
    assert set(where.values()) <= set(range(workers))
    share = sum(seconds) / workers
    assert max(found.values()) <= SLACK * max(share, *seconds) + max(seconds) + MOVE + 1e-9
