"""Robust rules: against byzfl, against loops, what liars can do to them, and which values are refused."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from heterophony.base.seeds import generator
from heterophony.catalogue import registry
from heterophony.engines import local, process
from heterophony.engines.network import Network
from heterophony.kernel.message import Message
from heterophony.kernel.node import Node
from heterophony.methods import BHFL, CFL, DSFL, FML, IFCA, RCFL, FedAvg, FedMD, FedNova, FedProto, Scaffold
from heterophony.parts import robust
from heterophony.parts.classwise import ClassMeans, merged
from heterophony.parts.cohort import Cohort
from heterophony.parts.combine import RULES, Combine
from heterophony.parts.lies import attack
from heterophony.settings.assemble import assemble
from heterophony.settings.setting import SettingError
from toys.federations import B16, CLIENTS, halves, hierarchy, logits_star, mutual_star, own_star, weights_star
from toys.watched import sent
from toys.world import PUBLIC, private

ORACLE = json.loads((Path(__file__).parent / "robust_oracle.json").read_text())  # made by tools/make_robust_oracle.py
POINTS = torch.tensor(ORACLE["points"], dtype=torch.float64)
ZERO = torch.zeros(POINTS.shape[1], dtype=torch.float64)
LIARS = ORACLE["liars"]
HONEST = len(POINTS) - LIARS
ROBUST = [rule for rule in RULES if rule not in ("mean", "trust")]


def draw(seed=0):
    return generator("draw", seed)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("median", lambda p: robust.median(p)),
        ("trimmed", lambda p: robust.trimmed(p, LIARS)),
        ("krum", lambda p: p[robust.chosen(p, LIARS, 1)].mean(0)),
        ("multi-krum", lambda p: p[robust.chosen(p, LIARS, HONEST)].mean(0)),
        ("geometric-median", lambda p: robust.geometric_median(p)),
        ("centred-clipping", lambda p: robust.centred_clipping(p, ZERO, 2.0, 3)),
        ("norm-clipping", lambda p: robust.clipped(p, ZERO, 2.0)[0].mean(0)),
        ("mixed", lambda p: robust.mixed(p, LIARS)),
    ],
)
def test_rules_are_those_of_byzfl(name, made):
    assert torch.allclose(made(POINTS), torch.tensor(ORACLE[name], dtype=torch.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mix", [False, True], ids=["plain", "mixed"])
@pytest.mark.parametrize("rule", ROBUST)
def test_three_liars_of_ten_move_no_rule_out_of_the_honest(rule, mix):
    """However far away they are, the result is as near to the honest mean as an honest item is, and they are named."""
    honest = [torch.randn(4, 5, generator=draw(i)) for i in range(7)]
    middle = torch.stack(honest).mean(0)
    reach = max(float((item - middle).norm()) for item in honest)
    sigma = {"sigma": 1.0} if rule == "filter" else {}
    combine = Combine(rule, mix=mix, **sigma)
    for far in (30.0, 1e6, 1e15):
        items = [*honest, *(torch.full((4, 5), far * sign) for sign in (1.0, 1.0, -1.0))]
        found = combine.of(items, draw())
        assert float((found.value - middle).norm()) <= reach
        if not mix:
            assert [ratio is not None for ratio in combine.doubted(items, found.value)] == [False] * 7 + [True] * 3


@pytest.mark.parametrize("rule", ["mean", *ROBUST])
def test_of_equal_items_every_rule_makes_the_item_and_doubts_nobody(rule):
    item = torch.randn(3, 4, generator=draw())
    for count in (1, 2, 3, 8):
        found = Combine(rule).of([item] * count, draw())
        assert torch.allclose(found.value, item, atol=1e-6)
        assert Combine(rule).doubted([item] * count, found.value) == [None] * count


def test_the_mean_is_the_mean_and_doubts_nobody():
    items = [torch.randn(3, 4, generator=draw(i)) for i in range(4)]
    assert torch.equal(Combine().of(items, draw()).value, torch.stack(items).mean(0))
    assert Combine().doubted([*items, torch.full((3, 4), 1e9)], items[0]) == [None] * 5


def test_trust_takes_steps_as_long_as_ones_own_by_their_cosines():
    """By hand: one's own step is (2, 0). Cosines are 1, sqrt(1/2), 0 for a right angle, and 0 for the other way."""
    steps = torch.tensor([[10.0, 0.0], [3.0, 3.0], [0.0, 5.0], [-1.0, 0.0]], dtype=torch.float64)
    found, trust = robust.trusting(steps, torch.tensor([2.0, 0.0], dtype=torch.float64))
    half = 0.5**0.5
    assert trust.tolist() == pytest.approx([1.0, half, 0.0, 0.0])
    assert found.tolist() == pytest.approx([(2 + half * 2 * half) / (1 + half), half * 2 * half / (1 + half)])
    assert robust.trusting(-steps[:1], torch.tensor([2.0, 0.0], dtype=torch.float64))[0].tolist() == [0.0, 0.0]


def test_by_trust_liars_who_step_the_other_way_do_not_count_and_the_server_needs_labelled_public_rows():
    """Two of three go the other way: all that is left is the third, and the length of the server's own step."""
    held = {**private(CLIENTS), "server": {"public": PUBLIC}}
    method = FedAvg(local=B16, cohort=Cohort(combine="trust"))
    star = replace(weights_star(method, attack=attack("sign-flip", ["c0", "c1"])), data=held)
    start, *_ = sent(star, "global", 1)
    own = {m.sender: m.weights for m in sent(star, "update", 1)}
    after = sent(star, "global", 2)[-1].weights
    flat = {name: torch.cat([w[key].flatten() - start.weights[key].flatten() for key in w]) for name, w in own.items()}
    moved = torch.cat([after[key].flatten() - start.weights[key].flatten() for key in after])
    assert float(torch.cosine_similarity(moved, flat["c2"], dim=0)) == pytest.approx(1.0, abs=1e-4)
    doubts = [i["detail"] for i in local(star).run(2).ledger.incidents]
    assert all("counted by 0%" in doubt for doubt in doubts)
    with pytest.raises(ValueError, match="Scaffold has no server that learns from public rows"):
        weights_star(Scaffold(local=B16, cohort=Cohort(combine="trust")))
    with pytest.raises(SettingError, match="trains on public data here, which needs labels"):
        assemble("fedavg", "rotated-mnist", changes={"cohort.combine": "trust", "data.public.labelled": False})


def test_clippings_from_a_nodes_own_model_keep_no_gradients():
    node = weights_star(FedAvg(local=B16)).node("server")
    said = {"weights": node.weights(), "examples": 1}
    mail = [Message("update", f"c{i}", "server", 0, (i, 0), said) for i in range(3)]
    for rule in ("centred-clipping", "norm-clipping"):
        made = Cohort(combine=rule).mean(node, mail)
        assert not any(tensor.requires_grad for tensor in made.values())


def test_a_large_vector_has_the_same_median_column_by_column(monkeypatch):
    points = torch.randn(5, 40, generator=draw())
    whole = robust.median(points), robust.trimmed(points, 1)
    monkeypatch.setattr(robust, "AT_ONCE", 15)
    assert torch.equal(whole[0], robust.median(points))
    assert torch.equal(whole[1], robust.trimmed(points, 1))


def test_only_the_mean_counts_by_examples():
    mail = [Message("up", f"c{i}", "s", 0, (i, 0), {"weights": {"w": torch.tensor([float(v)])}, "examples": n})
            for i, (v, n) in enumerate([(0, 1.0), (1, 1.0), (5, 1e9)])]  # fmt: skip
    node = Node("s", "server")
    assert Cohort().mean(node, mail)["w"].item() == pytest.approx(5.0)
    assert Cohort(combine="median").mean(node, mail)["w"].item() == 1.0
    assert Cohort(combine="trimmed").mean(node, mail)["w"].item() == 1.0


def test_a_class_is_combined_among_those_who_have_it():
    def table(value, counts):
        return ClassMeans(torch.full((2, 3), value), torch.tensor(counts))

    tables = {"a": table(1.0, [4.0, 0.0]), "b": table(2.0, [4.0, 2.0]), "c": table(1e6, [4.0, 0.0])}
    node = Node("s", "server")
    assert torch.equal(Cohort().table(node, tables).means, merged(list(tables.values())).means)
    found = Cohort(combine="median").table(node, tables)
    assert found.means[:, 0].tolist() == [2.0, 2.0]
    assert found.counts.tolist() == [12.0, 2.0]
    assert [doubt.partition(":")[0] for doubt in node.doubts] == ["class means from c"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("krumm", "rule is one of mean, median"),
        ({"rule": "median", "liars": 2}, "median does not use liars, got 2"),
        ({"rule": "krum", "liers": 2}, "got liers"),
        ({"rule": "krum", "liars": 0.7}, r"a share in \[0, 0.5\), got 0.7"),
        ({"rule": "norm-clipping", "radius": -1.0}, "radius is a number > 0"),
        (3, "combine is a rule"),
    ],
)
def test_what_is_no_rule_is_one_line(value, said):
    with pytest.raises(registry.OptionError, match=f"fedavg: cohort.combine = .*{said}") as caught:
        registry.lookup("fedavg").build({"combine": value})
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=said):
        Cohort(combine=value)


def test_a_rule_is_told_by_name_as_a_table_or_by_node():
    build = registry.lookup("bhfl").build
    assert build({"combine": "krum"}).cohort.combine == Combine("krum")
    assert build({"combine": {"rule": "median"}}).cohort.combine == Combine("median")
    assert build({"cohort.combine": {"rule": "krum", "liars": 1}}).cohort.combine == Combine("krum", liars=1)
    own = build({"combine": {"root": "median", "*": {"rule": "trimmed", "liars": 0.1}}}).cohort.combine
    assert own == {"root": Combine("median"), "*": Combine("trimmed", liars=0.1)}
    assert registry.parse('combine={ rule = "krum", liars = 2 }')[1] == {"rule": "krum", "liars": 2}
    with pytest.raises(registry.OptionError, match="afl has no option 'combine'"):
        registry.lookup("afl").build({"combine": "median"})


def test_more_liars_than_a_rule_bears_are_refused_before_anything_runs():
    with pytest.raises(ValueError, match="krum bears 1 liars among 5 or more, and server asks 3"):
        weights_star(FedAvg(cohort=Cohort(combine="krum")))
    with pytest.raises(ValueError, match="trimmed bears 2 liars among 5 or more, and server asks 3"):
        weights_star(FedAvg(cohort=Cohort(combine=Combine("trimmed", liars=2))))
    weights_star(FedAvg(cohort=Cohort(combine=Combine("krum", liars=0))))
    with pytest.raises(ValueError, match="krum bears 1 liars among 5 or more, and e0 asks 2"):
        hierarchy(BHFL(cohort=Cohort(combine={"1": Combine("krum", liars=1), "*": "median"})))


class Huge(Network):
    """Whatever c0 (in a tree, the first leaf) sends upwards is 9e14, just what the door takes."""

    def arrivals(self, message, *rest):
        if message.sender in ("c0", "l0"):
            for name, value in message.body.items():
                tensors = value.values() if isinstance(value, dict) else [value]
                for tensor in tensors:
                    if isinstance(tensor, torch.Tensor) and name not in ("held", "counts", "probabilities"):
                        tensor.fill_(9e14)
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


MEDIAN = Cohort(combine="median")


@pytest.mark.parametrize(
    "federation",
    [
        weights_star(FedAvg(local=B16, cohort=MEDIAN)),
        weights_star(Scaffold(local=B16, cohort=MEDIAN)),
        weights_star(FedNova(local=B16, cohort=MEDIAN)),
        weights_star(CFL(local=B16, cohort=MEDIAN)),
        weights_star(IFCA(local=B16, cohort=MEDIAN, clusters=1)),
        logits_star(FedMD(local=B16, distil=B16, cohort=MEDIAN)),
        own_star(FedProto(local=B16, cohort=MEDIAN), halves),
    ],
    ids=lambda federation: type(federation.method).__name__,
)
def test_by_the_median_one_huge_liar_sinks_nobody_and_is_named_alone(federation):
    found = local(federation, network=Huge).run(3)
    doubted = [row["detail"] for row in found.ledger.incidents if row["incident"] == "doubted"]
    assert doubted
    assert all(" from c0: " in detail for detail in doubted)
    assert {row["incident"] for row in found.ledger.incidents} == {"doubted"}
    assert found.table.select(quantity="accuracy", product=federation.method.headline).last().mean() is not None


def test_engines_agree_on_rules_and_doubts():
    federation = hierarchy(BHFL(local=B16, cohort=Cohort(combine=Combine("centred-clipping", mix=True))))
    one, other = local(federation).run(2), process(federation).run(2)
    assert one.digest == other.digest
    assert one.ledger.incidents == other.ledger.incidents


def test_every_averaging_method_takes_a_rule():
    """Another rule than the mean changes what comes out, and is the mean where it says mean."""
    makers = [
        (FedAvg, weights_star, {}), (Scaffold, weights_star, {}), (FML, lambda m: replace(mutual_star(), method=m), {}),
        (FedMD, logits_star, {"distil": B16}), (DSFL, logits_star, {"distil": B16}),
    ]  # fmt: skip
    for method, star, options in makers:
        found = {}
        for combine in (None, "mean", "median", "geometric-median"):
            made = method(local=B16, cohort=Cohort(combine=combine), **options)
            found[combine] = local(star(made)).run(2).digest
        assert found[None] == found["mean"]
        assert len(set(found.values())) == 3, method


def test_the_option_is_there_exactly_where_the_code_combines():
    """A method that names `cohort.combine` and never asks its cohort to combine would take the option in silence."""
    asks = re.compile(r"self\.cohort\.(merged|mean|together|tensor|of|table|labels)\(")
    for name, entry in registry.all_methods().items():
        if "cohort.combine" in entry.options():
            source = Path(inspect.getfile(entry.base)).read_text()
            assert asks.search(source), name
        trusts = getattr(entry.base, "trusts", False)
        assert trusts <= ("cohort.merged(" in Path(inspect.getfile(entry.base)).read_text()), name


def test_rcfl_takes_the_median_of_each_labels_scores_among_those_who_have_it():
    plain, median = (
        local(logits_star(RCFL(local=B16, distil=B16, cohort=Cohort(combine=rule)))).run(2).digest
        for rule in (None, "median")
    )
    assert plain != median
    method = RCFL(local=B16, distil=B16, cohort=MEDIAN)
    server = logits_star(method).node("server")

    def said(name, scores):
        rows = torch.tensor([scores])
        return Message("scores", name, "server", 0, (0, 0), {"scores": rows, "held": torch.ones(2), "accuracy": 1.0})

    fit = [said("a", [0.6, 0.4]), said("b", [0.8, 0.2]), said("c", [0.0, 1.0])]
    held = torch.tensor([[True, True], [True, False], [True, True]])
    found = method.by_rule(server, fit, held)
    assert torch.allclose(found, torch.tensor([[0.6, 0.7]]) / 1.3)
