"""Trees: what B-HFL must equal, numbers by hand, asynchrony, and coming and going."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony import Data, Federation, Model, Profile, Regression
from heterophony.base.seeds import generator
from heterophony.engines import local, process
from heterophony.kernel.topology import star, tree
from heterophony.methods import BHFL, FedAsync, FedAvg, bhfl_async, hierfavg
from heterophony.parts.cohort import Cohort
from heterophony.parts.node_optimiser import NodeOptimiser
from heterophony.parts.training import Training
from heterophony.runs.run import Run
from heterophony.runs.show import lines
from heterophony.runs.summary import Summary
from heterophony.tables.metrics import measure
from toys.by_hand import equal, scalar_net, squared
from toys.bytes import formula
from toys.federations import B16, CLIENTS, LEAVES, TREE, bhfl, deep_hierarchy, hierarchy, straggling
from toys.world import TESTS, net, points, private

PLAIN = NodeOptimiser()
HALF = NodeOptimiser(rate=0.5)
STEP = Training(batch=None, lr=0.5)


def model(result, node):
    return result.state(node)["models"]["model"]


def one(y):
    return {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), float(y)))}


def numbers(method, topology, ys, **options):
    """One number a model, all from 0; a node with y has a step at rate 0.5 that halves its way there."""
    models = {role: {"model": scalar_net} for role in set(topology.roles.values())}
    data = {node: one(y) for node, y in ys.items()}
    return Federation(replace(method, loss=squared, local=STEP, proxy=STEP), topology, models, data, **options)


def weights(federation, rounds, *nodes):
    result = local(federation).run(rounds)
    return [model(result, node)["weight"].item() for node in nodes]


# -- limits ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighted", [True, False])
def test_a_tree_of_depth_one_with_full_replacement_is_fedavg(weighted):
    models = {role: {"model": Model(net(), common=True)} for role in ("root", "leaf")}
    method = BHFL(down=PLAIN, cohort=Cohort(weighted=weighted), local=B16)
    deep = local(Federation(method, tree({"root": CLIENTS}), models, private(CLIENTS))).run(3)
    flat_models = {role: {"model": Model(net(), common=True)} for role in ("server", "client")}
    method = FedAvg(cohort=Cohort(weighted=weighted), local=B16)
    flat = local(Federation(method, star(CLIENTS), flat_models, private(CLIENTS))).run(3)
    assert equal(model(deep, "root"), model(flat, "server"))


def test_full_replacement_downwards_is_hierfavg():
    """Algorithm 1 of HierFAVG as plain loops: kappa_2 = 2 edge rounds for one of the cloud, weighted by examples."""
    federation = hierarchy(hierfavg(local=B16))  # whose proxy data and residual links are of no use to it
    result = local(federation).run(2)
    data = {leaf: federation.data[leaf]["train"] for leaf in LEAVES}
    epochs = dict.fromkeys(LEAVES, 0)

    def trained(leaf, start):
        module = net()()
        module.load_state_dict(start)
        optimiser = torch.optim.SGD(module.parameters(), B16.lr)
        order = torch.randperm(len(data[leaf]), generator=generator(0, leaf, "train", epochs[leaf]))
        epochs[leaf] += 1
        for rows in order.split(16):
            optimiser.zero_grad()
            F.cross_entropy(module(data[leaf].x[rows]), data[leaf].y[rows]).backward()
            optimiser.step()
        return {name: t.detach().clone() for name, t in module.state_dict().items()}

    def averaged(models, sizes):
        total = {name: t * (sizes[0] / sum(sizes)) for name, t in models[0].items()}
        for other, size in zip(models[1:], sizes[1:], strict=True):
            for name in total:
                total[name].add_(other[name], alpha=size / sum(sizes))
        return total

    cloud = {n: t.clone() for n, t in federation.node("root").models["model"].state_dict().items()}
    for _ in range(2):
        edges = []
        for edge in (LEAVES[:2], LEAVES[2:]):
            here = cloud
            for _ in range(2):
                here = averaged([trained(leaf, here) for leaf in edge], [len(data[leaf]) for leaf in edge])
            edges.append((here, sum(len(data[leaf]) for leaf in edge)))
        cloud = averaged([here for here, _ in edges], [size for _, size in edges])
    assert equal(model(result, "root"), cloud)


def test_a_buffer_for_all_children_is_a_synchronous_node():
    """Equal leaves; whoever waits for as many answers as there are children merges what a cohort would bring."""
    data = {**{leaf: {"train": points(leaf, 48)} for leaf in LEAVES}, "root": {"train": points("proxy")}}
    waiting, buffered = (
        local(replace(hierarchy(bhfl(buffer=buffer)), data=data)).run(3) for buffer in (0, {"root": 2, "*": 2})
    )
    assert waiting.digest == buffered.digest
    assert set(buffered.ledger.bytes()) == {"down", "push", "far-down"}


def test_an_asynchronous_tree_of_depth_one_is_fedasync():
    profiles = {c: Profile(seconds_per_sample=s) for c, s in zip(CLIENTS, (1e-3, 1.7e-3, 2.9e-3), strict=True)}
    models = {role: {"model": Model(net(), common=True)} for role in ("root", "leaf")}
    method = bhfl_async(up=NodeOptimiser(rate=0.6), down=PLAIN, local=B16)
    deep = local(Federation(method, tree({"root": CLIENTS}), models, private(CLIENTS), profiles=profiles)).run(7)
    models = {role: {"model": Model(net(), common=True)} for role in ("server", "client")}
    method = FedAsync(alpha=0.6, rho=0.0, local=B16)
    flat = local(Federation(method, star(CLIENTS), models, private(CLIENTS), profiles=profiles)).run(7)
    assert max(row["sum"] for row in deep.table.select(quantity="staleness")) >= 2
    assert deep.clock == flat.clock
    assert all(torch.allclose(t, model(flat, "server")[n], atol=1e-6) for n, t in model(deep, "root").items())


def test_without_a_pull_a_leaf_that_learns_from_its_parent_is_alone():
    """l2 with mu = 0 and mutual learning with a KL share of 0 leave a leaf to its own data, whatever comes down."""
    alone = local(hierarchy(bhfl(down=NodeOptimiser(rate=0.0)), tree(TREE))).run(2)
    for merge in ("l2", "ewc", "fomo", "mutual"):
        method = bhfl(merge={"leaf": merge, "*": "mix"}, pull=0.0, down=NodeOptimiser(rate=0.0))
        result = local(hierarchy(method, tree(TREE))).run(2)
        assert equal(model(result, "l1"), model(alone, "l1"))
        pulled = local(hierarchy(replace(method, pull=0.5), tree(TREE))).run(2)
        assert not equal(model(pulled, "l1"), model(alone, "l1"))


# -- numbers by hand -------------------------------------------------------------------------------------------
SEVEN = {"l0": 4.0, "l1": 8.0, "l2": 2.0, "l3": 6.0}


def test_golden_residual_routing_downwards():
    """A seven-node tree: root - (e0, e1) - (l0, l1), (l2, l3); a residual link from the root to l0.
    All rates down 0.5, up 1, T = 1, y = (4, 8, 2, 6).
    Round 1: everything sent down is 0. Leaves (2, 4, 1, 3), e = (3, 2), root 2.5.
    Round 2: e0 = 2.75, e1 = 2.25. l0 = 2 + (2.75 - 2)/2 = 2.375, then its residual: 2.375 + (2.5 - 2.375)/2 = 2.4375;
    l1 = 4 + (2.75 - 4)/2 = 3.375; l2 = 1 + (2.25 - 1)/2 = 1.625; l3 = 3 + (2.25 - 3)/2 = 2.625.
    Training: l = (l + y)/2 = (3.21875, 5.6875, 1.8125, 4.3125); e = (4.453125, 3.0625); root = 3.7578125.
    """
    federation = numbers(BHFL(down=HALF, far_down=HALF), tree(TREE, [("root", "l0")]), SEVEN)
    assert weights(federation, 1, "root", "e0", "l0") == [2.5, 3.0, 2.0]
    wanted = [3.7578125, 4.453125, 3.0625, 3.21875, 5.6875, 1.8125, 4.3125]
    assert weights(federation, 2, "root", "e0", "e1", *LEAVES) == wanted


@pytest.mark.parametrize(
    ("options", "root", "hops"),
    [
        # each edge sends its largest child update, 4 and 3: the root goes from 2.5 half way to 4, then half way to 3
        ({}, 3.125, 2),
        # both children of each: their means are 3 and 2, so 2.75, then 2.375
        ({"largest": 2}, 2.375, 4),
        # the same, averaged before they are sent
        ({"largest": 2, "averaged": True}, 2.375, 2),
        # one state and one step for all: the mean of 4 and 3 is 3.5, so 3
        ({"per_link": False}, 3.0, 2),
    ],
)
def test_golden_residual_routing_upwards(options, root, hops):
    """As above, round 1, with residual links between the root and both edge servers, which are its own children."""
    topology = tree(TREE, [("root", "e0"), ("root", "e1")])
    federation = numbers(BHFL(down=HALF, far_down=HALF, far_up=HALF, **options), topology, SEVEN)
    assert weights(federation, 1, "root") == [root]
    assert local(federation).run(1).ledger.bytes()["far-up"] == hops * 4


def test_residuals_pass_every_link_between_their_ends():
    """e0 is three links below the root here: one number is 4 bytes, on three links."""
    topology = tree({"root": {"m": {"n": {"e0": ["l0", "l1"]}}}}, [("root", "e0")])
    federation = numbers(BHFL(), topology, {"l0": 4.0, "l1": 8.0})
    ledger = local(federation).run(2).ledger
    assert {(r["from"], r["to"], r["hops"]) for r in ledger.messages if r["kind"] == "far-up"} == {("e0", "root", 3)}
    assert ledger.bytes()["far-up"] == ledger.bytes()["far-down"] == 2 * 3 * 4


def test_golden_proxy_training_before_and_beside_the_children():
    """Root with y = 8 and one leaf with y = 0; all rates 1, from 0.
    Before: the root goes to 4, the leaf from 4 to 2, the root takes 2. Again: 5, 2.5, 2.5.
    Beside, a = 1: the leaf gets 0 and stays there; what the root learned, +4, counts half, being one merge old: 2.
    Again: the leaf gets 2, brings 1; the root has learned (8 - 2)/2 = 3, half of which makes 2.5.
    """
    topology = tree({"root": ["l0"]})
    ys = {"root": 8.0, "l0": 0.0}
    before, beside = BHFL(down=PLAIN), BHFL(down=PLAIN, overlap=True, staleness=replace(BHFL().staleness, a=1.0))
    for rounds, wanted in ((1, [2.0, 2.0]), (2, [2.5, 2.5])):
        assert weights(numbers(before, topology, ys), rounds, "root", "l0") == wanted
    for rounds, wanted in ((1, [2.0, 0.0]), (2, [2.5, 1.0])):
        assert weights(numbers(beside, topology, ys), rounds, "root", "l0") == wanted


def test_golden_training_beside_the_children_as_printed():
    """The merge starts from what the root has learned, at rate 1/2. Round 1: the leaf stays at 0, the root learns 4 and
    goes half the way back, to 2. Round 2: the leaf brings 1, the root learns 5 and ends at 3. At rate one all is lost.
    """
    topology, ys = tree({"root": ["l0"]}), {"root": 8.0, "l0": 0.0}
    for up, wanted in ((HALF, [2.0, 3.0]), (PLAIN, [0.0, 0.0])):
        method = BHFL(down=PLAIN, up=up, overlap=True, beside="start")
        assert [weights(numbers(method, topology, ys), rounds, "root")[0] for rounds in (1, 2)] == wanted


def test_golden_steps_of_a_leafs_own_optimiser():
    """A leaf with y = 8 has momentum 1/2; all else is replaced. It learns 4, then 2, then nothing:
    m = 4, 2 + 2, 2 + 0, so that it is at 4, 8 and 10.
    """
    method = BHFL(down=PLAIN, up=NodeOptimiser({"leaf": "momentum", "*": "sgd"}, beta1=0.5), leaf_steps=True)
    federation = numbers(method, tree({"root": ["l0"]}), {"l0": 8.0})
    assert [weights(federation, rounds, "l0", "root") for rounds in (1, 2, 3)] == [[4.0] * 2, [8.0] * 2, [10.0] * 2]


def test_steps_of_leaves_at_rate_one_change_nothing():
    plain, stepped = (local(hierarchy(bhfl(up=PLAIN, leaf_steps=steps))).run(2) for steps in (False, True))
    assert plain.digest == stepped.digest


def test_a_leaf_that_lives_trains_between_messages_and_sends_no_more():
    """One number, rate 1/2 to y = 8; the parent's model counts nothing (rate 0). A hop takes 1 s, so the leaf is asked
    at 1 and 3 s; its clock strikes at 0.8, 1.6, 2.4 and 3.2 s, and the run ends at 4 s, before the next.
    """
    apart = NodeOptimiser(rate=0.0)
    for live, trained in ((None, 2), (0.8, 6)):
        federation = numbers(BHFL(down=apart, live=live), tree({"root": ["l0"]}), {"l0": 8.0})
        result = local(replace(federation, profiles={"": Profile(seconds_per_sample=0.0, latency=0.5)})).run(2)
        assert model(result, "l0")["weight"].item() == 8.0 - 8.0 * 0.5**trained
        assert result.state("l0")["round"] == trained
        assert [(r["kind"], r["time"]) for r in result.ledger.messages] == [
            *(("down", 0.0), ("up", 1.0), ("down", 2.0), ("up", 3.0))
        ]


def test_golden_l2_to_the_parent():
    """mu = 1, leaf y = 8, root y = -8, rate 0.5. Round 1: the root goes to -4; the leaf, at 0, steps by half of
    (8 - 0) + (-4 - 0), to 2; the root takes 2. Round 2: root -3; the leaf 2 + ((8 - 2) + (-3 - 2)) / 2 = 2.5.
    """
    method = BHFL(merge={"leaf": "l2", "*": "mix"}, pull=1.0)
    federation = numbers(method, tree({"root": ["l0"]}), {"root": -8.0, "l0": 8.0})
    assert [weights(federation, rounds, "l0")[0] for rounds in (1, 2)] == [2.0, 2.5]


def test_golden_l2_to_a_residual_link_downwards():
    """Root - e0 - l0, a link from the root to l0; y = -8 at the root, 8 at l0, mu = 1. The root goes to -4, e0 half of
    the way, to -2. The leaf is pulled to the mean of both, -3: half of (8 - 0) + (-3 - 0).
    """
    topology = tree({"root": {"e0": ["l0"]}}, [("root", "l0")])
    method = BHFL(down=HALF, far_down=HALF, merge={"leaf": "l2", "*": "mix"}, pull=1.0, far_merge="train")
    assert weights(numbers(method, topology, {"root": -8.0, "l0": 8.0}), 1, "l0") == [2.5]


def test_golden_l2_to_a_residual_link_upwards():
    """The same tree with a link between the root and e0, all rates half, l2 at the root with mu = 1.
    Round 1: root -4, e0 -2, l0 -1 + (8 + 1)/2 = 3.5, e0 -2 + 5.5/2 = 0.75, root -4 + 4.75/2 = -1.625; 3.5 came far.
    Round 2: root -1.625 + ((-8 + 1.625) + (3.5 + 1.625))/2 = -2.25, and so e0 -0.75 (its link: no more), l0 4.6875.
    """
    topology = tree({"root": {"e0": ["l0"]}}, [("root", "e0")])
    still = NodeOptimiser(rate=1e-30)
    method = BHFL(up=HALF, down=HALF, far_down=still, merge={"root": "l2", "*": "mix"}, pull=1.0, far_merge="train")
    federation = numbers(method, topology, {"root": -8.0, "l0": 8.0})
    assert weights(federation, 1, "root", "l0") == [-1.625, 3.5]
    assert weights(federation, 2, "l0", "e0", "root") == [4.6875, 1.96875, -0.140625]


def test_golden_ewc_to_the_parent():
    """As above. At the parent's -4 the leaf's gradient is -12, so its information is 144, and a strength of 1/144 pulls
    as l2 does: to 2. Then at -3 it is 121: 2 + (6 - 121/144 * 5) / 2.
    """
    method = BHFL(merge={"leaf": "ewc", "*": "mix"}, pull=1 / 144)
    federation = numbers(method, tree({"root": ["l0"]}), {"root": -8.0, "l0": 8.0})
    assert weights(federation, 1, "l0")[0] == pytest.approx(2.0, rel=1e-5)
    assert weights(federation, 2, "l0")[0] == pytest.approx(5 - 121 / 144 * 2.5, rel=1e-5)


def test_golden_fomo_to_the_parent():
    """Leaf y = 8, root y = 16. Round 1: the root goes to 8, which is better for the leaf than 0, so it goes half of the
    way, to 4, and learns 6. Round 2: the root goes from 6 to 11, which is worse; the leaf learns 7.
    """
    method = BHFL(merge={"leaf": "fomo", "*": "mix"}, pull=0.5)
    federation = numbers(method, tree({"root": ["l0"]}), {"root": 16.0, "l0": 8.0})
    rows = {node: own["train"] for node, own in federation.data.items()}
    judged = {node: {"train": Data(x=own.x, y=own.y, task=Regression())} for node, own in rows.items()}
    federation = replace(federation, data=judged)
    assert [weights(federation, rounds, "l0")[0] for rounds in (1, 2)] == [6.0, 7.0]


def test_mutual_learning_is_cross_entropy_and_kl_from_the_parent():
    """The leaf's training against a plain loop, with the parent's opinion of its data taken before."""
    method = BHFL(merge={"leaf": "mutual", "*": "mix"}, pull=0.3, local=B16, proxy=B16)
    models = {role: {"model": net()} for role in ("root", "leaf")}
    data = {"l0": {"train": points("l0", 40)}, "root": {"train": points("proxy")}}
    federation = Federation(method, tree({"root": ["l0"]}), models, data)
    result = local(federation).run(1)
    sent = local(replace(federation, method=replace(method, local=replace(B16, epochs=0)))).run(1)
    parent, leaf = net()(), federation.node("l0").models["model"]
    parent.load_state_dict(sent.state("l0")["vars"]["parent"])
    own = data["l0"]["train"]
    with torch.no_grad():
        teacher = parent(own.x).log_softmax(-1)
    optimiser = torch.optim.SGD(leaf.parameters(), B16.lr)
    for rows in torch.randperm(40, generator=generator(0, "l0", "train", 0)).split(16):
        optimiser.zero_grad()
        student = leaf(own.x[rows]).log_softmax(-1)
        kl = sum(
            float(t.exp()) * (t - s) for i, r in enumerate(rows) for t, s in zip(teacher[r], student[i], strict=True)
        )
        (0.7 * F.nll_loss(student, own.y[rows]) + 0.3 * kl / len(rows)).backward()
        optimiser.step()
    assert all(torch.allclose(t, model(result, "l0")[n], atol=1e-6) for n, t in leaf.state_dict().items())


def test_golden_notes():
    """Round 1 of the seven nodes, equal shares: updates (2, 4) at e0 agree, and their mean is 3; with l1 at -8 they are
    (2, -4), which point apart, and their mean is -1. Nothing is stale.
    """
    for y, mean, agreement in ((8.0, 3.0, 1.0), (-8.0, 1.0, -1.0)):
        federation = numbers(BHFL(cohort=Cohort(weighted=False)), tree(TREE), {**SEVEN, "l1": y})
        notes = local(federation).run(1).table.select(product="note", node="e0")
        found = {row["quantity"]: (row["sum"], row["n"]) for row in notes}
        assert found == {"pseudo-gradient.norm": (mean, 1), "cosine": (agreement, 1), "staleness": (0, 2)}


def test_shares_are_the_examples_of_whole_subtrees():
    """l0 holds three rows, all others one: e0 = (3 * 2 + 4)/4 = 2.5, e1 = 2, and the root is (4 * 2.5 + 2 * 2)/6."""
    federation = numbers(BHFL(), tree(TREE), SEVEN)
    three = Data(x=torch.ones(3, 1), y=torch.full((3, 1), 4.0))
    federation = replace(federation, data={**federation.data, "l0": {"train": three}})
    assert weights(federation, 1, "e0", "e1", "root") == pytest.approx([2.5, 2.0, 14 / 6])


# -- turns, states, tables -------------------------------------------------------------------------------------
def test_every_node_has_its_own_number_of_turns():
    """Reactions counted: of a leaf, one for each time it is asked; of an inner node, one more than its turns."""
    method = bhfl(turns={"m1": 3, "1": 2, "e0": 2, "l3": 4, "*": 1})
    engine = local(deep_hierarchy(method))
    engine.run(2)
    asked = {"m0": 2, "m1": 2, "e0": 2 * 2, "e1": 2 * 2, "e2": 2 * 3}  # rounds of the root, times turns of the parent
    turns = {"m0": 2, "m1": 3, "e0": 2, "e1": 1, "e2": 1}
    asked |= {"l0": asked["e0"] * 2, "l1": asked["e0"] * 2, "l2": asked["e1"], "l3": asked["e2"]}
    reactions = {n: count * (1 + turns[n]) if n in turns else count for n, count in asked.items()}
    assert {n: box.activations for n, box in engine.boxes.items()} == {"root": 2 * 2, **reactions}
    assert engine.host.node("l3").epochs["train"] == 4 * asked["l3"]  # T of a leaf: so many trainings
    assert engine.host.node("l2").epochs["train"] == asked["l2"]


def test_optimiser_states_are_apart_at_every_node_and_link():
    result = local(deep_hierarchy()).run(2)
    states = {node: result.state(node)["vars"].get("states", {}) for node in result.nodes}
    assert {node: set(own) for node, own in states.items()} == {
        "root": {"up", "far-up/e0", "far-up/e2"},
        "m0": {"up", "down"},
        "m1": {"up", "down"},
        "e0": {"up", "down", "far-down/root"},
        "e1": {"up", "down"},
        "e2": {"up", "down", "far-down/root"},
        "l0": {"down"},
        "l1": {"down"},
        "l2": {"down", "far-down/m0"},
        "l3": {"down"},
    }
    moments = [
        t for own in states.values() for state in own.values() for named in state.values() for t in named.values()
    ]
    assert len({t.data_ptr() for t in moments}) == len(moments)
    one = local(deep_hierarchy(bhfl(turns=1, per_link=False))).run(2)
    assert set(one.state("root")["vars"]["states"]) == {"up", "far-up"}


def test_rates_by_node_level_and_role():
    """Down rates: e0 0.5 by its id, e1 0.25 by level, leaves 1 by role. Round 2 from e = (3, 2) and root 2.5."""
    method = BHFL(down=NodeOptimiser(rate={"e0": 0.5, "1": 0.25, "leaf": 1.0, "*": 0.0}))
    result = local(numbers(method, tree(TREE), SEVEN)).run(2)
    down = {r["to"]: r for r in result.ledger.messages if r["kind"] == "down"}
    assert set(down) == {"e0", "e1", *LEAVES}
    got = [model(result, leaf)["weight"].item() for leaf in LEAVES]
    assert got == [(2.75 + 4) / 2, (2.75 + 8) / 2, (2.125 + 2) / 2, (2.125 + 6) / 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"turns": {"inner": 2}}, "turns has no value for root"),
        ({"down": NodeOptimiser(rate={"root": 1.0})}, r"down\.rate has no value for inner"),
        ({"local": Training(lr={"root": 0.1})}, r"local\.lr has no value for leaf"),
        ({"proxy": Training(batch={"leaf": 4, "inner": 8})}, r"proxy\.batch has no value for root"),
        ({"fraction": {"root": 0.5}}, r"cohort\.fraction has no value for inner"),
        ({"fraction": {"root": 0.0, "*": 1.0}}, "fraction is a share"),
        ({"deadline": {"root": -1.0}}, "deadline"),
    ],
)
def test_tables_that_cannot_work_are_refused(options, text):
    def made():
        ours = options.keys() <= vars(Cohort()).keys()
        return BHFL(cohort=Cohort(**options)) if ours else BHFL(**options)

    with pytest.raises(ValueError, match=text):
        made()


def test_a_buffer_larger_than_the_family_is_refused():
    with pytest.raises(Exception, match=r"buffer is 3 answers, but e0 has 2 children"):
        local(hierarchy(bhfl(buffer={"inner": 3, "*": 0}))).run(1)


def test_cohorts_are_drawn_among_children():
    federation = hierarchy(bhfl(cohort=Cohort(fraction={"inner": 0.5, "*": 1.0})), tree(TREE))
    result = local(federation).run(4)
    asked = [r["to"] for r in result.ledger.messages if r["kind"] == "down" and r["from"] == "e0"]
    assert len(asked) == 4 * 2
    assert set(asked) == {"l0", "l1"}
    assert result.ledger.bytes() == {k: v for k, v in formula(federation, 4).items() if v}


shapes = st.recursive(st.just(0), lambda below: st.lists(below, min_size=1, max_size=3), max_leaves=7).filter(bool)


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(1, 3), st.data())
def test_a_tree_of_any_shape_sends_what_the_formula_says(shape, turns, data):
    """Also: every leaf is asked once for every turn of all above it."""
    parents = {}

    def grow(name, below):
        children = {f"{name}{i}": each for i, each in enumerate(below or ())}
        parents.update(dict.fromkeys(children, name))
        return {child: grow(child, each) for child, each in children.items()}

    spec = {"n": grow("n", shape)}
    leaves = [node for node in parents if node not in parents.values()]
    inner = [node for node in parents if node not in leaves]
    links = data.draw(st.lists(st.sampled_from(sorted(parents)), unique=True, max_size=3))
    topology = tree(spec, [("n", node) for node in links])
    method = BHFL(turns={"inner": turns, "*": 1}, largest=data.draw(st.integers(1, 3)))
    federation = numbers(method, topology, {leaf: i for i, leaf in enumerate(leaves)})
    result = local(federation).run(2)
    sent = result.ledger.bytes()
    assert {kind: size for kind, size in formula(federation, 2).items() if size} == sent
    for leaf in leaves:
        above = [node for node in topology.path(leaf) if node in inner]
        assert result.state(leaf)["round"] == 2 * turns ** len(above)


# -- asynchrony ------------------------------------------------------------------------------------------------
def test_an_asynchronous_run_stands_with_mail_in_flight_and_resumes_to_the_bit(tmp_path):
    """Stopped after every seventh wave: what is on its way, or unread, is part of the snapshot."""
    build = lambda: straggling(bhfl(buffer={"e1": 2, "*": 1}))  # noqa: E731
    whole = local(build()).run(4)
    seen = []

    def stop_at(engine):
        seen.append(sum("Arrival" in type(event).__name__ for _, event in engine.queue.heap))
        engine.stop = len(seen) % 7 == 0

    folder, federation = tmp_path / "run", build()

    def attempt(opened):
        with opened as run:
            try:
                return local(federation, record=run, progress=stop_at).run(4)
            except KeyboardInterrupt:
                return None

    result, stops = attempt(Run.create(folder, federation.identity(), 4)), 0
    while result is None:
        stops += seen[-1] > 0
        result = attempt(Run.open(folder, federation.identity()))
    assert stops >= 3  # times at which mail was in flight
    assert (result.digest, result.clock, result.table.rows) == (whole.digest, whole.clock, whole.table.rows)
    other = local(replace(build(), seed=1)).run(4)
    assert other.digest != whole.digest


def test_nobody_waits_for_a_straggler():
    """l3 takes twenty times as long as the others; with buffers the root has done its merges long before."""
    profiles = {"l3": Profile(seconds_per_sample=2e-2)}
    ends = {}
    for name, buffer in (("waiting", 0), ("buffered", {"root": 1, "*": 1})):
        result = local(replace(hierarchy(bhfl(buffer=buffer, turns=1)), profiles=profiles)).run(4)
        marks = result.table.select(product="root", quantity="accuracy", set="here")
        ends[name] = marks.rows[-1]["time"]
    assert ends["buffered"] < ends["waiting"] / 4


# -- coming and going ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", [local, pytest.param(process, marks=pytest.mark.slow)])
def test_a_dead_edge_server_leaves_its_siblings_running_and_catches_up_when_it_returns(engine):
    """e0 is away from 0.15 s to 0.7 s. The root waits 0.2 s a round for it; e1 and its leaves go on as ever.

    What the root has sent meanwhile reaches e0 together: it mixes in all of it, sets its children to work once, and
    answers the newest.
    """
    method = bhfl(turns=1, cohort=Cohort(deadline={"root": 0.2}))
    away = {"e0": Profile(available=((0.0, 0.15), (0.7, math.inf)))}
    result = engine(hierarchy(method, tree(TREE), profiles=away)).run(8)
    took = [r["round"] for r in result.ledger.messages if r["kind"] == "up" and r["from"] == "e0"]
    missed = sorted(set(range(8)) - set(took))
    assert missed == [1, 2]
    assert [r["round"] for r in result.ledger.messages if r["kind"] == "up" and r["from"] == "e1"] == list(range(8))
    assert {i["detail"] for i in result.ledger.incidents if i["incident"] == "timeout"} == {
        f"up from e0, round {round}" for round in missed
    }
    assert took[-1] == 7
    back = [r for r in result.ledger.messages if r["kind"] == "down" and r["from"] == "e0" and r["time"] >= 0.7]
    assert len(back) == 2 * len([round for round in took if round > missed[-1]])  # not once for every model it missed


def test_an_edge_server_that_is_gone_for_good_is_done_without():
    method = bhfl(turns=1, cohort=Cohort(deadline={"root": 0.2}))
    result = local(hierarchy(method, tree(TREE), profiles={"e0": Profile(available=((0.0, 0.15),))})).run(4)
    assert result.rounds == 4
    assert result.state("l2")["round"] == 4
    assert result.state("l0")["round"] < 4


@pytest.mark.parametrize("buffer", [0, 1])
def test_a_subtree_joins_a_running_tree(buffer):
    """e1 and its leaves come after 0.3 s; from then on the root asks it too, and its models are like the others'."""
    joins = {"e1": 0.3, "l2": 0.3, "l3": 0.3}
    federation = hierarchy(bhfl(turns=1, buffer=buffer), joins=joins)
    rounds = 8 if not buffer else 16
    result = local(federation).run(rounds)
    asked = [r for r in result.ledger.messages if r["kind"] == "down" and r["to"] in joins]
    assert asked
    assert min(r["time"] for r in asked) >= 0.3
    answers = [r["round"] for r in result.ledger.messages if r["kind"] in ("up", "push") and r["from"] == "e1"]
    assert answers
    assert all(0 < round < rounds for round in answers)
    assert result.state("l2")["round"] == result.state("l3")["round"] >= 2
    assert result.state("l0")["round"] > result.state("l2")["round"]


def test_a_leaf_joins_a_family():
    result = local(hierarchy(bhfl(turns=1), joins={"l3": 0.3})).run(6)
    assert 0 < result.state("l3")["round"] < result.state("l2")["round"] == 6


def test_the_last_models_of_all_levels_are_evaluated_whatever_their_own_count():
    federation = hierarchy(bhfl(turns={"inner": 2, "*": 1}), evaluate=20)
    table = local(federation).run(3).table.select(quantity="accuracy")
    last = {level: max(row["round"] for row in table.select(product=level)) for level in ("root", "inner", "leaf")}
    assert last == {"root": 2, "inner": 5, "leaf": 5}


def test_leaves_of_a_tree_that_does_not_wait_have_figures_however_seldom_it_is_evaluated():
    """The root may be done before a slow leaf has done a second round."""
    found = []
    for evaluate in (1, 6):
        result = local(straggling(bhfl_async(local=B16), evaluate=evaluate)).run(6)
        found.append((result.digest, measure(result.table, dict.fromkeys(LEAVES, "here"), "leaf")))
    assert found[0] == found[1]
    assert found[0][1].worst is not None


def test_the_best_round_of_a_tree_is_the_roots():
    """Leaves count their trainings, of which an edge server asks for two before the root hears of them."""
    tests = {name: {"test": data, "validation": points(f"{name} validation")} for name, data in TESTS.items()}
    federation = replace(hierarchy(), tests=tests, homes=dict.fromkeys(LEAVES, "here"))
    result = local(federation).run(3)
    made = Summary.of(federation.identity(), result)
    validated = result.table.select(product="leaf", quantity="accuracy", split="validation")
    rates = {r: sum(row["sum"] for row in validated if row["round"] == r) for r in range(6)}
    training = max(rates, key=rates.__getitem__)
    assert (made.best.training, made.best.round) == (training, training // 2)
    assert training > 2  # or a leaf's own count would be a round of the root's, too
    said = next(line for line in lines(made) if line.startswith("best by validation"))
    assert said.startswith(f"best by validation: the root's round {training // 2 + 1}, all domains ")
