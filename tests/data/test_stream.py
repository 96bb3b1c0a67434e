"""Streams: no row comes twice, memory is bounded, and all follows from (seed, participant, round)."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony import Profile
from heterophony.data import Data, DataError
from heterophony.data.stream import Drift, Stream
from heterophony.engines import local
from heterophony.methods import Ditto, FedAvg, Solo
from heterophony.parts.retention import Retention
from heterophony.parts.training import Training
from heterophony.runs.findings.drift import OverTime
from heterophony.runs.findings.finding import Evidence
from heterophony.settings import Setting, SettingError, assemble
from heterophony.settings.building import build
from heterophony.tables.drift import over_time
from toys.federations import B16, bhfl, hierarchy, peers, personal_star, streaming, weights_star


def rows(count, label=0):
    return Data(x=torch.arange(count).float().unsqueeze(1), y=torch.full((count,), label), classes=4)


def stream(count=200, kind="sudden", concepts=2, every=3, pools=None, sizes=None, **how):
    sizes = sizes or [count] * concepts
    views = [lambda c=c, n=n: rows(n, c) for c, n in enumerate(sizes)]
    return Stream(views, Drift(kind, concepts, every), pools=pools, **{"arrivals": 5, "name": "c0", **how})


# -- drift -----------------------------------------------------------------------------------------------------
def test_shares_by_hand():
    sudden, again, slowly = (Drift(kind, 3, 2).shares for kind in ("sudden", "recurring", "gradual"))
    assert [sudden(r).index(1.0) for r in range(8)] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert [again(r).index(1.0) for r in range(8)] == [0, 0, 1, 1, 2, 2, 0, 0]
    assert [slowly(r) for r in range(6)] == [
        *((1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (0.0, 0.5, 0.5)),
        *((0.0, 0.0, 1.0), (0.0, 0.0, 1.0)),
    ]
    assert Drift("gradual", 1, 2).shares(5) == (1.0,)
    with pytest.raises(DataError, match="every >= 1"):
        Drift("sudden", 2, 0)


@given(st.sampled_from(["sudden", "gradual", "recurring"]), st.integers(1, 4), st.integers(1, 5), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_shares_are_shares(kind, concepts, every, round):
    shares = Drift(kind, concepts, every).shares(round)
    assert len(shares) == concepts
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(1)


# -- what comes and what is kept -------------------------------------------------------------------------------
@given(
    st.sampled_from(["sudden", "gradual", "recurring"]),
    st.sampled_from(["recent", "reservoir"]),
    st.integers(0, 12),
    st.integers(0, 5),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_no_row_comes_twice_and_nothing_is_seen_again_unless_memory_keeps_it(kind, keep, memory, seed, apart):
    pools = [0, 1, 2] if apart else None
    made = stream(kind=kind, concepts=3, keep=keep, memory=memory, seed=seed, pools=pools)
    came, before = [], []
    for round in range(9):
        new, kept = made.come(round), made.kept(round)
        assert len(kept) == min(memory, 5 * round)
        assert set(kept) <= set(before)  # only what has come before
        came += [(c if apart else 0, row) for c, row in new]
        before += new
        view = made.at(round)
        seen = [*kept, *new]
        assert [(int(y), int(x)) for x, y in zip(view.x[:, 0], view.y, strict=True)] == seen  # in this order
        if keep == "recent":
            assert kept == before[: 5 * round][len(before[: 5 * round]) - len(kept) :]
    assert len(set(came)) == len(came)


def test_a_stream_repeats_from_its_seed_in_any_order_of_questions():
    def asked(order, **how):
        made = stream(kind="gradual", keep="reservoir", memory=7, **how)
        return {r: (made.kept(r), made.come(r), made.at(r).x.tolist()) for r in order}

    forwards = asked(range(12))
    assert forwards == asked(reversed(range(12))) == asked([5, 5, 0, 11, 3, *range(12)])
    assert forwards != asked(range(12), seed=1)
    assert forwards != asked(range(12), name="c1")


def test_a_reservoir_is_a_fair_sample():
    """Each of the 40 rows that have come is among the 10 kept with chance 1/4: 50 of 200 times, deviation 6.1."""
    times = torch.zeros(40)
    for seed in range(200):
        made = stream(40, concepts=1, keep="reservoir", memory=10, arrivals=8, seed=seed)
        first = {row: place for place, row in enumerate(r for t in range(5) for _, r in made.come(t))}
        for _, row in made.kept(5):
            times[first[row]] += 1
    assert times.sum() == 2000
    assert (times - 50).abs().max() < 4.5 * 6.1
    assert abs(times[:20].sum() - 1000) < 4.5 * 30


def test_a_dry_stream_says_so():
    made = stream(12)
    made.at(1)
    with pytest.raises(DataError, match="the stream of c0 is dry in round 2: its 12 rows have all come"):
        made.at(2)
    with pytest.raises(DataError, match="arrivals >= 1"):
        stream(arrivals=0)


# -- in a federation -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "build",
    [
        lambda: weights_star(FedAvg(local=B16)),
        lambda: peers(method=Solo(local=B16)),
        lambda: personal_star(Ditto(local=B16), client=("model", "fork")),
        hierarchy,
    ],
    ids=["fedavg", "solo", "ditto", "bhfl"],
)
def test_any_method_trains_on_what_its_rounds_bring(build):
    """Through the node's view alone: one row of data less, and the run is another."""
    here, there = (local(streaming(build(), memory=memory)).run(2) for memory in (6, 5))
    assert here.digest != there.digest
    assert here.digest == local(streaming(build(), memory=6)).run(2).digest


def test_a_client_that_misses_rounds_finds_the_stream_where_it_is():
    federation = streaming(weights_star(FedAvg(local=Training(batch=None))))
    node = federation.node("c0")
    node.round = 3
    view = node.data["train"]
    assert len(view) == 6 + 8
    assert node.data["train"] is view
    node.round = 0
    assert len(node.data["train"]) == 8
    assert "train" in node.data


SMALL = {
    "name": "drifting",
    "data": {
        "source": "digits-embedded",
        "clients": 2,
        "test": 0.1,
        "stream": {"arrivals": 8, "every": 2, "memory": 4, "concepts": [{}, {"degrees": 90}, {"labels": 3}]},
    },
    "models": {"participants": "mlp"},
}


def test_concepts_of_a_setting():
    federation = assemble("solo", Setting.of(SMALL))
    plain, turned, moved = (federation.tests["digits-embedded"][f"concept-{i}"] for i in range(3))
    assert torch.equal(plain.x, federation.tests["digits-embedded"]["test"].x)
    assert torch.allclose(turned.x, plain.x.rot90(-1, (2, 3)), atol=1e-4)
    assert torch.equal(moved.y, (plain.y + 3) % 10)
    made = federation.data["c0"]["train"]
    assert made.pools == (0, 0, 0)
    (_, row), *_ = made.come(2)
    assert torch.equal(made.at(2).x[4], made.concepts[1]().x[row])
    result = federation.run(4)
    found = over_time(result.table, federation.homes, "local", made.drift.shares)
    assert [entry["round"] for entry in found] == [0, 1, 2, 3]
    assert [entry["past"] is None for entry in found] == [True, True, False, False]


def test_streams_that_go_from_domain_to_domain_share_no_row():
    values = {**SMALL, "data": {**SMALL["data"], "source": None, "domains": {
        name: {"source": "digits-embedded", "degrees": d, "rows": 200} for name, d in (("a", 0), ("b", 30), ("c", 60))
    }}}  # fmt: skip
    setting = Setting.of(values).changed({"data.stream.concepts": [{}, {"domain": 1}], "data.stream.arrivals": 4})
    made = build(setting.data, 0)
    assert made.views["a.0"]["train"].pools == (0, 1)
    held = {}
    for name in ("a.0", "c.0"):
        own = made.views[name]["train"]
        held[name] = {c: {tuple(x.flatten().tolist()) for x in view().x} for c, view in enumerate(own.concepts)}
        shares = {"a.0": 34, "c.0": 33}  # of a client's 100 rows, between three domains
        assert [len(rows) for rows in held[name].values()] == [shares[name]] * 2
    assert held["c.0"][1].isdisjoint(held["a.0"][0])  # c's second concept is a's first: the same images, other rows
    assert torch.equal(made.tests["c"]["concept-1"].x, made.tests["a"]["test"].x)


def test_what_cannot_be_a_stream_is_said():
    with pytest.raises(SettingError, match=r"data.stream.arrivals: field required"):
        Setting.of({**SMALL, "data": {**SMALL["data"], "stream": {"memory": 3}}})
    setting = Setting.of(SMALL).changed({"data.public": {"fraction": 0.1}})
    with pytest.raises(SettingError, match=r"has a stream: set local\.data=train"):
        assemble("fedh2l", setting)
    assemble("fedh2l", setting, changes={"local.data": "train"})


# -- the table -------------------------------------------------------------------------------------------------
def test_present_and_past_by_hand():
    """Two concepts, the second from round 2 on. On the first: 6, 8, 5 of 10; on the second: 1, 2, 9."""

    def row(round, concept, right, node="c0"):
        place = {"round": round, "time": 10.0 * round, "product": "local", "node": node, "set": "A"}
        return {**place, "split": f"concept-{concept}", "quantity": "accuracy", "sum": right, "n": 10}

    table = [row(r, c, right) for c, rights in enumerate(((6, 8, 5), (1, 2, 9))) for r, right in enumerate(rights)]
    table += [{**row(0, 0, 0), "split": "test"}, {**row(0, 0, 0), "quantity": "loss"}]
    first, _, third = over_time(table, {"c0": "A"}, "local", Drift("sudden", 2, 2).shares)
    assert first == {"round": 0, "time": 0.0, "present": 0.6, "past": None, "forgotten": None}
    assert third == {"round": 2, "time": 20.0, "present": 0.9, "past": 0.5, "forgotten": pytest.approx(0.3)}
    mixed = over_time(table, {"c0": "A"}, "local", Drift("gradual", 2, 2).shares)
    assert mixed[1]["present"] == pytest.approx((0.8 + 0.2) / 2)
    shared = over_time(
        [{**r, "node": "server"} for r in table], {"c0": "A", "c1": "A"}, "local", Drift("sudden", 2, 2).shares
    )
    assert shared[2]["past"] == 0.5
    other = [row(2, 0, None, "c1"), row(2, 1, None, "c1")]  # has diverged: then nobody can say a mean
    *_, lost = over_time(table + other, {"c0": "A", "c1": "A"}, "local", Drift("sudden", 2, 2).shares)
    assert (lost["present"], lost["past"], lost["forgotten"]) == (None, None, None)


def test_a_leaf_goes_on_with_its_stream_between_two_messages():
    """Three turns of a leaf are three rounds of its stream: 24 of its rows have come when its parent hears of it."""
    federation = streaming(hierarchy(bhfl(turns={"leaf": 3, "*": 1}, far=False)))
    result = local(federation).run(1)
    assert result.state("l0")["round"] == 3
    trained = [row["round"] for row in result.table.select(product="training", node="l0")]
    assert trained == [0, 1, 2]
    assert [row["round"] for row in result.table.select(product="leaf", node="l0", set="here", quantity="loss")] == [2]


# -- by virtual time -------------------------------------------------------------------------------------------
def test_a_stream_of_seconds_goes_on_whatever_its_participant_does():
    made = stream(seconds=0.5)
    assert [made.step(7, time) for time in (0.0, 0.49, 0.5, 1.6)] == [0, 0, 1, 3]
    assert [stream().step(round, 9.0) for round in (0, 7)] == [0, 7]
    with pytest.raises(DataError, match="seconds > 0"):
        stream(seconds=0.0)


def test_rows_are_deleted_between_two_contacts_unless_the_leaf_lives():
    """Each contact is three rounds of the stream after the one before; nothing is kept. Who is asked only sees a third.

    All rows of a leaf are told apart by their values. What it has seen is what came in the rounds it trained in.
    """
    seen = {}
    for live in (None, 0.1):
        made = streaming(hierarchy(bhfl(turns=1, live=live)), seconds=0.1, memory=0, arrivals=4)
        far = Profile(seconds_per_sample=0.0, latency=0.0375)  # four hops of 0.075 s
        federation = replace(made, profiles={"": far}, data={**made.data, "root": {}})
        engine = local(federation)
        rounds = seen.setdefault(live, set())
        node = engine.host.node("l1")
        at = node.data.data["train"].at
        node.data.data["train"].at = lambda round, at=at, rounds=rounds: (rounds.add(round), at(round))[1]
        engine.run(3)
    assert seen[None] == {1, 4, 7}  # it hears at 0.15, 0.45 and 0.75 s
    assert seen[0.1] == set(range(1, 9))  # 0.1, 0.2, ... until the root has its third merge at 0.9 s


def test_a_streams_view_stands_still_while_a_reaction_runs():
    """Prediction and training of LwoF are on the same rows, though the stream goes on before the training begins."""
    made = streaming(hierarchy(bhfl(turns=1, retain=Retention(lwof=1.0))), seconds=0.5, memory=0, arrivals=3)
    federation = replace(made, profiles={"": Profile(seconds_per_sample=1.0)}, data={**made.data, "root": {}})
    engine = local(federation)
    stream_of, asked = engine.host.node("l1").data.data["train"], []
    at = stream_of.at
    stream_of.at = lambda round: (asked.append(round), at(round))[1]
    result = engine.run(2)
    assert set(asked) == {0, 8}  # a prediction of 3 rows takes 1 s, training on them 3 s
    assert result.clock == 8.0


def test_present_and_past_by_virtual_time_by_hand():
    """Rounds of 10 s. c0 is marked in the first and third, c1 in the second: each counts until the next of its own."""

    def row(time, concept, right, node):
        place = {"round": 7, "time": time, "product": "leaf", "node": node, "set": "A"}
        return {**place, "split": f"concept-{concept}", "quantity": "accuracy", "sum": right, "n": 10}

    marks = {("c0", 3.0): (6, 1), ("c0", 9.9): (8, 2), ("c1", 12.0): (4, 4), ("c0", 25.0): (5, 9)}
    table = [row(time, c, right, node) for (node, time), rights in marks.items() for c, right in enumerate(rights)]
    second, third = over_time(table, {"c0": "A", "c1": "A"}, "leaf", Drift("sudden", 2, 2).shares, 10.0)
    assert (second["round"], second["present"], second["past"]) == (1, pytest.approx(0.6), None)
    assert (third["round"], third["present"]) == (2, pytest.approx((0.9 + 0.4) / 2))
    assert third["past"] == pytest.approx((0.5 + 0.4) / 2)
    assert third["forgotten"] == pytest.approx((0.3 + 0.0) / 2)


def test_a_setting_of_seconds_makes_streams_that_go_by_time():
    setting = Setting.of(SMALL).changed({"data.stream.seconds": 0.25})
    federation = assemble("bhfl", setting, changes={"live": 0.25})
    assert federation.data["c0"]["train"].seconds == 0.25
    result = federation.run(2)
    seen = Evidence({"homes": federation.homes, "headline": "leaf", "recipe": federation.recipe}, result.table, None)
    rounds = [row["round"] for row in OverTime.of(seen).value]
    assert rounds == list(range(rounds[0], int(result.table.rows[-1]["time"] / 0.25) + 1))
    with pytest.raises(SettingError, match=r"data.stream.seconds"):
        Setting.of(SMALL).changed({"data.stream.seconds": 0})
