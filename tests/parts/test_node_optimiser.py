"""NODEOPT against plain loops in double precision, and options that differ from node to node."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heterophony.base.seeds import generator
from heterophony.kernel.by_level import check_complete, check_known, pick
from heterophony.methods import FedAvg
from heterophony.parts.node_optimiser import NodeOptimiser, move, moving
from heterophony.parts.schedules import Ramp, Stairs
from heterophony.parts.staleness import Staleness
from heterophony.parts.updates import cosine, norm
from toys.federations import weights_star

KINDS = ("sgd", "momentum", "nesterov", "adam", "yogi", "adagrad")


def by_loops(optimiser, start, targets):
    """Eq. 3 (with v_{t-1} in 3c) and its relatives, one number at a time; v starts at tau^2."""
    found = []
    for place, w in enumerate(start):
        m, v = 0.0, optimiser.tau**2
        for target in targets:
            delta = target[place] - w
            if optimiser.kind == "sgd":
                w += optimiser.rate * delta
                continue
            if optimiser.kind in ("momentum", "nesterov"):
                m = optimiser.beta1 * m + delta
                w += optimiser.rate * (m if optimiser.kind == "momentum" else delta + optimiser.beta1 * m)
                continue
            m = optimiser.beta1 * m + (1 - optimiser.beta1) * delta
            if optimiser.kind == "adam":
                v = optimiser.beta2 * v + (1 - optimiser.beta2) * delta**2
            elif optimiser.kind == "yogi":
                v = v - (1 - optimiser.beta2) * delta**2 * math.copysign(1, v - delta**2) * (v != delta**2)
            else:
                v = v + delta**2
            w += optimiser.rate * m / (math.sqrt(v) + optimiser.tau)
        found.append(w)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_is_its_formula(kind):
    optimiser = NodeOptimiser(kind, rate=0.3, beta1=0.8, beta2=0.95, tau=0.05)
    start, *targets = torch.randn(6, 7, generator=generator("steps"), dtype=torch.float64)
    weights, state = {"w": start}, {}
    for target in targets:
        weights, state = optimiser.step(weights, {"w": target}, state, {"w"})
    expected = torch.tensor(by_loops(optimiser, start.tolist(), [t.tolist() for t in targets]), dtype=torch.float64)
    assert torch.allclose(weights["w"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["momentum", "nesterov"])
def test_momentum_at_servers_is_torchs_with_the_mean_update_as_a_gradient(kind):
    optimiser = NodeOptimiser(kind, rate=0.3, beta1=0.8)
    start, *targets = torch.randn(6, 7, generator=generator("steps"), dtype=torch.float64)
    weights, state = {"w": start}, {}
    parameter = torch.nn.Parameter(start.clone())
    right = torch.optim.SGD([parameter], lr=0.3, momentum=0.8, nesterov=kind == "nesterov")
    for target in targets:
        weights, state = optimiser.step(weights, {"w": target}, state, {"w"})
        parameter.grad = parameter.detach() - target
        right.step()
    torch.testing.assert_close(weights["w"], parameter.detach(), rtol=1e-12, atol=1e-12)


def test_a_nodes_rate_follows_its_own_rounds():
    rate = {"root": Ramp(1.0, 0.5, 2), "1": Stairs(0.8, 0.5, every=1), "*": 0.1}
    optimiser = NodeOptimiser(rate=rate)
    assert [optimiser.at("root", "0", "root", round=round).rate for round in range(4)] == [1.0, 0.75, 0.5, 0.5]
    assert [optimiser.at("e0", "1", "inner", round=round).rate for round in range(3)] == [0.8, 0.4, 0.2]
    assert optimiser.at("l0", "2", "leaf", round=9).rate == 0.1
    for wrong in (Ramp(1.0, -0.1, 2), Stairs(1.0, 2.0, every=1), {"root": -1.0, "*": 1.0}):
        with pytest.raises(ValueError, match="rate >= 0"):
            NodeOptimiser(rate=wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_mixed_plainly_whatever_the_rule(kind):
    """rate 0.25 is a share for the plain rules; the adaptive ones take the mean over, for their rate is no share."""
    weights, target = (
        {"w": torch.ones(2), "var": torch.tensor([4.0])},
        {"w": torch.zeros(2), "var": torch.tensor([8.0])},
    )
    state = {}
    for wanted in (5.0, 5.75) if kind in ("sgd", "momentum", "nesterov") else (8.0, 8.0):
        weights, state = NodeOptimiser(kind, rate=0.25).step(weights, target, state, {"w"})
        assert weights["var"].item() == wanted
    assert all("var" not in moments for moments in state.values())


def test_a_plain_step_of_rate_one_is_the_target_to_the_bit():
    weights, target = {"w": torch.tensor([1e8])}, {"w": torch.tensor([0.1])}
    assert torch.equal(NodeOptimiser().step(weights, target, {}, {"w"})[0]["w"], target["w"])
    by_difference = weights["w"] + (target["w"] - weights["w"])
    assert not torch.equal(by_difference, target["w"])  # what it would cost otherwise


def test_a_step_leaves_its_inputs_alone():
    for kind in KINDS:
        weights, target = {"w": torch.ones(2)}, {"w": torch.zeros(2)}
        _, state = NodeOptimiser(kind, rate=0.5).step(weights, target, {}, {"w"})
        before = {name: {k: t.clone() for k, t in moments.items()} for name, moments in state.items()}
        NodeOptimiser(kind, rate=0.5).step(weights, target, state, {"w"})
        assert torch.equal(weights["w"], torch.ones(2))
        assert torch.equal(target["w"], torch.zeros(2))
        assert all(torch.equal(before[name]["w"], state[name]["w"]) for name in state)


@pytest.mark.parametrize("wrong", [{"rate": -1.0}, {"tau": 0.0}, {"beta1": 1.0}, {"rate": {"root": 1.0, "*": -1.0}}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="node optimiser"):
        NodeOptimiser(**wrong)


def test_the_most_particular_entry_counts():
    table = {"e0": 1, "2": 2, "inner": 3, "*": 4}
    assert [pick(table, *names) for names in (("e0", "2", "inner"), ("e1", "2", "inner"), ("e1", "1", "inner"))] == [
        1, 2, 3,
    ]  # fmt: skip
    assert pick(table, "root", "0", "root") == 4
    assert pick({"root": 1}, "e0", "1", "inner") is None
    assert pick(7, "e0") == 7
    own = NodeOptimiser({"root": "adam", "*": "sgd"}, rate={"1": 0.5, "*": 1.0}).at("e0", "1", "inner")
    assert (own.kind, own.rate, own.beta1) == ("sgd", 0.5, 0.9)


def test_tables_that_say_nothing_or_too_much_are_named():
    part = NodeOptimiser(rate={"root": 1.0, "leaf": 0.5})
    with pytest.raises(ValueError, match="rate has no value for inner"):
        check_complete(part, ("root", "inner", "leaf"))
    check_complete(part, ("root", "inner", "leaf"), optional=("rate",))
    check_complete(part, ("root", "leaf"))
    with pytest.raises(ValueError, match="rate: no node, level or role is called 'leaf'"):
        check_known(part, ["e0"], ["root"], 2)
    with pytest.raises(ValueError, match="'3'"):
        check_known(NodeOptimiser(rate={"2": 1.0, "3": 1.0, "*": 1.0}), [], [], 2)


def test_discounts_by_hand():
    """(1 + 3)^-1/2 = 1/2; hinge: 1 up to b = 4, then 1 / (a (s - 4) + 1) = 1 / (0.5 * 2 + 1) = 1/2 at s = 6."""
    assert Staleness().discount(3) == 0.5
    assert [Staleness("hinge").discount(s) for s in (0, 4, 6)] == [1.0, 1.0, 0.5]
    assert Staleness("constant").discount(100) == 1.0
    assert all(Staleness(kind).discount(0) == 1 for kind in ("polynomial", "hinge", "constant"))
    with pytest.raises(ValueError, match="a >= 0"):
        Staleness(a=-1.0)


vectors = st.lists(st.lists(st.integers(-5, 5), min_size=4, max_size=4), min_size=0, max_size=5)


@given(vectors)
def test_the_mean_cosine_is_that_over_all_pairs(rows):
    updates = [{"a": torch.tensor(row[:3]).double(), "b": torch.tensor(row[3:]).double()} for row in rows]
    lengths = [math.sqrt(sum(x * x for x in row)) for row in rows]
    assert [norm(update) for update in updates] == pytest.approx(lengths)
    kept = [(row, length) for row, length in zip(rows, lengths, strict=True) if length]
    pairs = [
        sum(x * y for x, y in zip(a, b, strict=True)) / (p * q)
        for i, (a, p) in enumerate(kept)
        for b, q in kept[i + 1 :]
    ]
    assert cosine(updates) == (pytest.approx(sum(pairs) / len(pairs), abs=1e-9) if pairs else None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_moves_by_values(kind):
    """Its weights are read where they are; nothing that it keeps, or was given, is they or hangs on them."""
    node, optimiser = weights_star(FedAvg()).node("server"), NodeOptimiser(kind, rate=0.5)
    before = node.weights()
    target = {name: tensor + 1 for name, tensor in before.items()}
    given = {name: tensor.clone() for name, tensor in target.items()}
    expected, kept = optimiser.step(before, target, {}, moving(node))
    move(node, target, optimiser)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in node.weights().items())
    assert all(torch.equal(target[name], given[name]) for name in given)
    for moment, named in kept.items():
        for name, tensor in named.items():
            found = node.vars["states"]["up"][moment][name]
            assert torch.equal(found, tensor)
            assert not found.requires_grad
