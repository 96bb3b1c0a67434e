"""Every metric against plain loops over the rows, and against figures worked out by hand."""

import json
import math
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony.tables.metrics import Metrics, best_round, best_rounds, conflicts, curve, measure
from heterophony.tables.table import Table

ENTRY = ("round", "acc", "wdp", "cdp", "inter")
UNKNOWN = dict.fromkeys(("top5", "loss", "f1", "calibration"))
HEADLINES = ("acc", "wdp", "cdp", "intra", "inter", "loss", "top5", "f1", "calibration", "private")


def row(node, set, total, n, *, round=1, time=None, product="local", split="test", quantity="accuracy"):
    place = {"round": round, "time": float(round) if time is None else time, "product": product, "node": node}
    return {**place, "set": set, "split": split, "quantity": quantity, "sum": total, "n": n}


# Unequal sets: pooled and plain means differ.
HOMES = {"a": "A", "b": "B"}
UNEQUAL = [
    row("a", "A", 8, 10),
    row("a", "B", 30, 100),
    row("a", "C", 15, 30),
    row("b", "A", 2, 10),
    row("b", "B", 90, 100),
    row("b", "C", 3, 30),
]


def test_pooled_and_plain_means_by_hand():
    found = measure(UNEQUAL, HOMES, "local")
    a, b = found.participants["a"], found.participants["b"]
    assert a["acc"] == pytest.approx(53 / 140)  # (8 + 30 + 15) / (10 + 100 + 30)
    assert b["acc"] == pytest.approx(95 / 140)  # (2 + 90 + 3) / 140
    assert found.acc == pytest.approx(74 / 140)
    assert (a["wdp"], b["wdp"]) == (0.8, 0.9)
    assert found.wdp == found.intra == pytest.approx(0.85)
    assert a["cdp"] == pytest.approx(45 / 130)  # pooled: (30 + 15) / (100 + 30)
    assert b["cdp"] == pytest.approx(5 / 40)  # (2 + 3) / (10 + 30)
    assert found.cdp == pytest.approx((45 / 130 + 5 / 40) / 2)
    assert a["inter"] == pytest.approx(0.4)  # plain: (0.3 + 0.5) / 2
    assert b["inter"] == pytest.approx(0.15)  # (0.2 + 0.1) / 2
    assert found.inter == pytest.approx(0.275)
    assert found.worst == 0.8
    assert found.spread == pytest.approx(0.05)  # 0.8 and 0.9 about 0.85
    assert found.private is None
    assert set(found.scores.values()) == {None}


def test_every_participant_uses_the_one_global_model():
    rows = [row("server", "A", 8, 10, product="global"), row("server", "B", 30, 100, product="global")]
    found = measure(rows, {"a": "A", "b": "B", "c": "B"}, "global")
    assert found.acc == 38 / 110
    assert found.wdp == pytest.approx((0.8 + 0.3 + 0.3) / 3)
    assert found.cdp == found.inter == pytest.approx((0.3 + 0.8 + 0.8) / 3)  # one other set: both ways agree
    assert found.worst == 0.3
    assert found.spread == pytest.approx(math.sqrt((0.5**2 * 2) / 9))  # p (1 - p) (0.8 - 0.3)^2 with p = 1/3
    assert found.participants["b"] == found.participants["c"]


def test_where_rounds_ask_only_some_everyones_last_model_counts():
    rows = [row("a", "A", 5, 10, round=1), row("b", "A", 2, 10, round=2), row("a", "A", 7, 10, round=3)]
    homes = {"a": "A", "b": "A"}
    assert measure(rows, homes, "local").wdp == pytest.approx((0.7 + 0.2) / 2)
    assert [at["wdp"] for at in curve(rows, homes, "local")] == [None, pytest.approx(0.35), pytest.approx(0.45)]
    assert measure(rows, {**homes, "c": "A"}, "local").wdp is None  # of whom nothing is known
    assert measure(rows, homes, "local", round=2).wdp == pytest.approx(0.35)
    assert measure(rows, homes, "local", round=1).wdp is None


def test_servers_are_left_out_where_participants_have_their_own():
    assert measure([*UNEQUAL, row("server", "A", 0, 10)], HOMES, "local") == measure(UNEQUAL, HOMES, "local")
    late = [row("server", "A", 0, 10, round=9, time=9.0)]
    assert curve(UNEQUAL + late, HOMES, "local") == curve(UNEQUAL, HOMES, "local")


def test_several_models_of_no_participant_are_refused():
    rows = [row("edge0", "A", 8, 10), row("edge1", "A", 9, 10)]
    for function in (measure, best_round, curve):
        of = [{**r, "split": "validation"} for r in rows] if function is best_round else rows
        with pytest.raises(ValueError, match="no participant has the product 'local', and 2 other nodes have it"):
            function(of, HOMES, "local")


def test_losses_and_the_like_are_pooled():
    def of(node, set, total, n):
        return row(node, set, total, n, quantity="loss")

    rows = [*UNEQUAL, of("a", "A", 1.0, 10), of("a", "B", 5.0, 20), of("b", "A", 3.0, 10), of("b", "B", 3.0, 20)]
    assert measure(rows, HOMES, "local").scores["loss"] == pytest.approx(0.2)  # 6 / 30 and 6 / 30
    f1 = [row("a", "A", 1.5, 2, quantity="f1"), row("a", "B", 1.5, 3, quantity="f1")]
    assert measure(UNEQUAL + f1, HOMES, "local").scores["f1"] is None  # b has none
    assert measure(UNEQUAL + f1, {"a": "A"}, "local").scores["f1"] == pytest.approx(0.6)


def test_private_tests_are_found_by_the_participants_name():
    def private(node, set, total, **options):
        return row(node, set, total, 10, split="private-test", **options)

    mine = [private("a", "a", 5), private("a", "b", 0), private("b", "b", 8), private("a", "a", 1, round=2)]
    found = measure(UNEQUAL + mine, HOMES, "local")
    assert found.private == pytest.approx(0.65)
    assert found.participants["a"]["private"] == 0.5
    shared = [row("server", "A", 1, 2, product="global")]
    shared += [private("server", name, total, product="global") for name, total in (("a", 2), ("b", 3))]
    assert measure(shared, HOMES, "global").private == pytest.approx(0.25)
    assert measure(shared[:2], HOMES, "global").private is None


def test_private_tests_alone_have_figures():
    """Between organisations there may be no set that everyone holds."""
    rows = [row(name, name, right, 10, split="private-test") for name, right in (("a", 8), ("b", 6))]
    for homes in ({"a": "A", "b": "B"}, {}):
        found = measure(rows, homes, "local")
        assert {name: own["private"] for name, own in found.participants.items()} == {"a": 0.8, "b": 0.6}
        assert (found.private, found.acc) == (pytest.approx(0.7), None)


def test_one_set_has_no_others():
    rows = [row("a", "A", 8, 10), row("b", "A", 6, 10)]
    found = measure(rows, {"a": "A", "b": "A"}, "local")
    assert (found.cdp, found.inter) == (None, None)
    assert (found.acc, found.wdp, found.worst) == (pytest.approx(0.7), pytest.approx(0.7), 0.6)
    assert found.spread == pytest.approx(0.1)


def test_a_home_that_is_no_set_leaves_worst_to_acc():
    found = measure(UNEQUAL, {"a": "A", "b": "elsewhere"}, "local")
    assert found.wdp is found.intra is None
    assert found.participants["b"]["cdp"] == found.participants["b"]["acc"] == pytest.approx(95 / 140)
    assert found.worst == pytest.approx(53 / 140)
    assert found.spread == pytest.approx(21 / 140)


@pytest.mark.parametrize("undefined", [None, math.nan, math.inf])
def test_an_undefined_sum_makes_undefined_what_depends_on_it(undefined):
    rows = [*UNEQUAL[:1], row("a", "B", undefined, 100), *UNEQUAL[2:]]
    found = measure(rows, HOMES, "local")
    assert found.participants["a"] == {"acc": None, "wdp": 0.8, "cdp": None, "inter": None, "private": None}
    assert found.participants["b"]["acc"] == pytest.approx(95 / 140)
    assert (found.acc, found.cdp, found.inter) == (None, None, None)
    assert (found.wdp, found.worst) == (pytest.approx(0.85), 0.8)
    mine = measure([row("a", "A", undefined, 10), *UNEQUAL[1:]], HOMES, "local")
    assert (mine.wdp, mine.worst, mine.spread) == (None, None, None)
    assert mine.participants["a"]["cdp"] == pytest.approx(45 / 130)


def test_an_empty_set_adds_nothing_to_a_pool_and_has_no_rate():
    found = measure([row("a", "A", 8, 10), row("a", "B", 0, 0), row("a", "C", 3, 10)], {"a": "A"}, "local")
    assert (found.acc, found.cdp, found.inter) == (0.55, 0.3, None)
    assert measure([row("a", "A", 0, 0)], {"a": "A"}, "local").acc is None


def test_no_rows_and_no_participants():
    nothing = dict.fromkeys(("acc", "wdp", "cdp", "inter", "private"))
    assert measure([], HOMES, "local") == Metrics(scores=UNKNOWN, participants={"a": nothing, "b": nothing})
    assert measure(UNEQUAL, HOMES, "global").participants == {"a": nothing, "b": nothing}
    assert measure(UNEQUAL, HOMES, "local", round=0).participants == {"a": nothing, "b": nothing}
    assert measure([], {}, "local") == Metrics(scores=UNKNOWN)
    assert curve([], HOMES, "local") == []
    assert best_round([], HOMES, "local") is None


def test_without_homes_whoever_has_the_product_takes_part_on_all_sets():
    homeless, known = measure(UNEQUAL, {}, "local"), measure(UNEQUAL, HOMES, "local")
    assert homeless.acc == known.acc
    assert homeless.participants.keys() == known.participants.keys()
    assert (homeless.wdp, homeless.cdp, homeless.inter) == (None, None, None)
    assert [at["acc"] for at in curve(UNEQUAL, {}, "local")] == [at["acc"] for at in curve(UNEQUAL, HOMES, "local")]


def test_last_is_everyones_last_evaluation():
    def all_of(round):
        return [{**r, "round": round, "sum": round} for r in UNEQUAL]

    only_a = [{**r, "round": 5} for r in UNEQUAL if r["node"] == "a"]
    validation = [{**r, "split": "validation"} for r in all_of(6)]
    other = [{**r, "product": "global"} for r in all_of(7)]
    rows = [*all_of(3), *only_a, *all_of(2), *validation, *other]
    assert measure(rows, HOMES, "local") == measure(rows, HOMES, "local", round=5)
    assert measure(rows, HOMES, "local").wdp == pytest.approx((8 / 10 + 3 / 100) / 2)
    for round in (3, 4):
        assert measure(rows, HOMES, "local", round=round).wdp == pytest.approx((3 / 10 + 3 / 100) / 2)
    assert measure(rows, HOMES, "local", round=2).wdp == pytest.approx((2 / 10 + 2 / 100) / 2)
    assert measure(rows, HOMES, "local", split="validation").wdp == pytest.approx((6 / 10 + 6 / 100) / 2)
    assert measure(rows, HOMES, "local", round=1).acc is None


def test_of_two_marks_in_a_round_the_later_counts():
    again = [{**r, "sum": 0, "time": 0.5} for r in UNEQUAL]
    assert measure(UNEQUAL + again, HOMES, "local") == measure(UNEQUAL, HOMES, "local")
    later = [{**r, "sum": 0} for r in UNEQUAL]
    assert measure(UNEQUAL + later, HOMES, "local").acc == 0


def validated(*by_round, first=1):
    """Rounds of (a's, b's) right answers of 150."""
    return [
        row(node, HOMES[node], right, 150, round=at, split="validation")
        for at, rights in enumerate(by_round, first)
        for node, right in zip("ab", rights, strict=True)
    ]


def test_best_round_is_the_highest_and_the_earliest_of_equals():
    assert best_round(validated((90, 90), (100, 90), (95, 96), (80, 80)), HOMES, "local") == 3
    # 191 right in sum each time, whoever has them; and the order of rows is no matter.
    ties = validated((90, 90), (100, 91), (91, 100), (95, 96), (1, 190))
    assert best_round(ties, HOMES, "local") == 2
    assert best_round(list(reversed(ties)), HOMES, "local") == 2
    assert best_round(validated((0, 0), (0, 0)), HOMES, "local") == 1


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=30))
def test_best_round_among_many_ties(rights):
    rights = [(a, min(150, 140 - a) if a <= 140 else b) for a, b in rights]
    sums = [a + b for a, b in rights]
    assert best_round(validated(*rights), HOMES, "local") == sums.index(max(sums)) + 1


def test_best_round_never_looks_at_test():
    test = [row(node, HOMES[node], 150, 150, round=1) for node in "ab"]
    assert best_round(test, HOMES, "local") is None
    assert best_round(test + validated((1, 1), (2, 2)), HOMES, "local") == 2


def test_best_round_passes_over_undefined_rounds():
    rows = validated((90, 90), (None, 150), (80, 80))
    assert best_round(rows, HOMES, "local") == 1
    rows += [row("a", "A", 150, 150, round=4, split="validation")]  # beside what b had in the round before
    assert best_round(rows, HOMES, "local") == 4
    assert best_round(validated((None, 1)), HOMES, "local") is None


def test_each_node_keeps_the_best_of_its_own_models():
    """a's validation is best in round 2 (pooled: 11 of 20 beats 10 of 20), b's in round 1, the earlier of equals."""
    right = {("a", 1): (4, 6), ("a", 2): (9, 2), ("b", 1): (7, 7), ("b", 2): (5, 9), ("b", 3): (1, 1)}
    rows = [
        row(node, set, total, 10, round=round, split="validation")
        for (node, round), totals in right.items()
        for set, total in zip("AB", totals, strict=True)
    ]
    tests = {("a", 1): 10, ("a", 2): 1, ("b", 1): 2, ("b", 2): 10}  # the opposite on test, which must not matter
    rows += [row(node, "A", total, 10, round=round) for (node, round), total in tests.items()]
    kept = best_rounds(rows, HOMES, "local")
    assert kept == {"a": 2, "b": 1}
    found = measure(rows, HOMES, "local", round=kept)
    assert found.acc == pytest.approx((0.1 + 0.2) / 2)
    assert best_rounds(rows, HOMES, "global") == {}
    undefined = row("a", "A", None, 10, round=0, split="validation")
    assert best_rounds([*rows, undefined], HOMES, "local") == kept


def test_one_round_for_all_is_that_round_by_node():
    assert measure(UNEQUAL, HOMES, "local", round={"a": 1, "b": 1}) == measure(UNEQUAL, HOMES, "local", round=1)


def test_conflicts_by_hand():
    def noted(node, value, quantity="gradients.cosine"):
        return row(node, "", value, 1, product="note", split="", quantity=quantity)

    rows = [noted("a", c) for c in (-0.5, 0.2, -0.1, 0.4, None)] + [
        noted("b", 0.3),
        noted("b", -9.0, "other"),
        *UNEQUAL,
    ]
    assert conflicts(rows) == {
        "a": {"rounds": 4, "share": 0.5, "cosine": pytest.approx(-0.3)},
        "b": {"rounds": 1, "share": 0.0, "cosine": 0.0},
    }


def test_curve_goes_on_with_models_that_stay_as_they_are_and_is_in_order():
    rows = [*({**r, "round": 10} for r in UNEQUAL), *UNEQUAL, row("a", "A", 8, 10, round=2, time=7.5)]
    rows.append(row("a", "A", 1.0, 10, round=3, quantity="loss"))
    first, second, last = curve(rows, HOMES, "local")
    assert first.keys() == {"round", "time", "acc", "wdp", "cdp", "inter"}
    assert (first["round"], second["round"], last["round"]) == (1, 2, 10)
    assert first["inter"] == pytest.approx(0.275)
    assert (second["time"], second["wdp"], second["inter"]) == (
        7.5,
        pytest.approx(0.85),
        None,
    )  # a was asked of A alone
    assert second["acc"] == pytest.approx((0.8 + 95 / 140) / 2)


def test_a_table_a_list_and_json():
    found = measure(Table(UNEQUAL), HOMES, "local")
    assert found == measure(UNEQUAL, HOMES, "local")
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain == found.as_dict()
    assert plain["participants"]["a"]["wdp"] == 0.8


def test_equal_figures_have_exactly_their_mean_and_no_spread():
    homes = {f"c{i}": "A" for i in range(7)}
    found = measure([row("server", "A", 1, 10, product="global")], homes, "global")
    assert (found.acc, found.wdp, found.worst, found.spread) == (0.1, 0.1, 0.1, 0.0)


# --- plain loops ---

QUANTITIES = ("accuracy", "loss", "top5", "f1", "calibration")


def mean(values):
    values = list(values)
    return None if not values or None in values else math.fsum(values) / len(values)


def pool(rows):
    n = sum(r["n"] for r in rows)
    return None if n == 0 or any(r["sum"] is None for r in rows) else sum(r["sum"] for r in rows) / n


def plain_participant(rows, participant, home, model):
    def of(split, quantity, keep):
        return [
            r
            for r in rows
            if r["node"] == model and r["split"] == split and r["quantity"] == quantity and keep(r["set"])
        ]

    others = sorted({r["set"] for r in of("test", "accuracy", lambda s: s != home)})
    return {
        "acc": pool(of("test", "accuracy", lambda s: True)),
        "wdp": pool(of("test", "accuracy", lambda s: s == home)),
        "cdp": pool(of("test", "accuracy", lambda s: s != home)),
        "inter": mean(pool(of("test", "accuracy", lambda s, o=other: s == o)) for other in others),
        "private": pool(of("private-test", "accuracy", lambda s: s == participant)),
        **{q: pool(of("test", q, lambda s: True)) for q in QUANTITIES[1:]},
    }


def plain_metrics(table, homes, product, round):
    rows = [r for r in table if r["product"] == product and r["round"] == round]
    server = product == "global"
    each = {p: plain_participant(rows, p, home, "server" if server else p) for p, home in homes.items()}
    headline = {name: mean(of[name] for of in each.values()) for name in HEADLINES if name != "intra"}
    headline["intra"] = headline["wdp"]
    basis = "acc" if headline["wdp"] is None else "wdp"
    values = [of[basis] for of in each.values()]
    centre = mean(values)
    headline["worst"] = None if centre is None else min(values)
    headline["spread"] = None if centre is None else math.sqrt(mean((v - centre) ** 2 for v in values))
    kept = ("acc", "wdp", "cdp", "inter", "private")
    return headline, {p: {name: of[name] for name in kept} for p, of in each.items()}


def random_table(seed, undefined):
    """Rows of one product, its name and the homes; `undefined` adds empty sets, homeless participants and gaps."""
    of = Random(seed)
    participants = [f"c{i}" for i in range(of.randint(1, 4))]
    sets = [f"s{i}" for i in range(of.randint(1, 4))]
    sizes = {s: of.randint(1, 40) if of.random() > 0.1 * undefined else 0 for s in [*sets, *participants]}
    homes = {p: of.choice(sets) if of.random() > 0.1 * undefined else "elsewhere" for p in participants}
    product = of.choice(["global", "local"])
    nodes = ["server"] if product == "global" else participants
    rows = [
        row(node, s, of.randint(0, sizes[s]), sizes[s], round=at, product=product, split=split, quantity=quantity)
        for at in range(of.randint(1, 3))
        for node in nodes
        for split, named in (("test", sets), ("validation", sets), ("private-test", participants))
        for s in named
        for quantity in QUANTITIES
    ]
    if undefined:
        rows = [r if of.random() > 0.02 else {**r, "sum": None} for r in rows if of.random() > 0.02]
    rows += [row(nodes[0], s, 1, 1, round=at, product="another") for s in sets for at in range(9)]
    of.shuffle(rows)
    return rows, homes, product


TABLES = st.builds(random_table, st.integers(0, 2**32), st.booleans())
DEFINED = st.builds(random_table, st.integers(0, 2**32), st.just(False))


def agree(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)), name


@settings(deadline=None)
@given(TABLES)
def test_random_tables(case):
    rows, homes, product = case
    for round in {r["round"] for r in rows if r["product"] == product and r["split"] == "test"}:
        found = measure(rows, homes, product, round=round).as_dict()
        participants = found.pop("participants")
        headline, each = plain_metrics(rows, homes, product, round)
        agree(found, headline)
        assert participants.keys() == each.keys()
        for participant, figures in each.items():
            agree(participants[participant], figures)


@settings(deadline=None)
@given(TABLES)
def test_a_curve_is_measured_round_by_round(case):
    rows, homes, product = case
    for entry in curve(rows, homes, product):
        found = measure(rows, homes, product, round=entry["round"]).as_dict()
        assert entry["time"] == entry["round"]
        agree({k: v for k, v in entry.items() if k != "time"}, {k: found.get(k, entry["round"]) for k in ENTRY})


@settings(deadline=None)
@given(DEFINED)
def test_the_best_round_of_random_tables(case):
    rows, homes, product = case
    validation = [{**r, "split": "test"} for r in rows if r["split"] == "validation"]
    accs = {at["round"]: at["acc"] for at in curve(validation, homes, product)}
    best = best_round(rows, homes, product)
    assert accs[best] >= max(accs.values()) - 1e-12
    assert all(acc < accs[best] for round, acc in accs.items() if round < best)


def steps_of(work):
    """Return how many lines of Python a call runs, and what it returns."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = work()
    finally:
        sys.settrace(before)
    return count, found


def large(shared, models):
    """Return tables of each of many models on its own set, or of one model on as many sets."""
    names = [f"c{i}" for i in range(models)]
    rows = [row("server" if shared else name, name, 1, 2, round=at) for at in range(5) for name in names]
    if not shared:  # a small cohort in most rounds
        rows += [row("c0", "c0", 1, 2, round=at) for at in range(5, 2 * models)]
    return rows, {name: name for name in names}


@pytest.mark.parametrize("shared", [False, True])
def test_many_rows_take_linear_time(shared):
    rows, homes = large(shared, 100)
    half, _ = steps_of(lambda: curve(rows, homes, "local"))
    rows, homes = large(shared, 200)
    whole, entries = steps_of(lambda: curve(rows, homes, "local"))
    assert whole < 2.5 * half  # quadratic work would be four times as much
    assert len(entries) == len({r["round"] for r in rows})
    assert (entries[0]["wdp"], entries[0]["inter"]) == (0.5, 0.5 if shared else None)
