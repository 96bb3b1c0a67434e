"""Participants that hold slices of one network: limits, golden toys, the door, virtual time, BatchNorm."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Attack, Capacity, Data, Federation, Model, Profile, freeze
from heterophony.engines import local
from heterophony.kernel.fields import Refused, Shape
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedSALoRA, HeteroFL, HetLoRA, depthfl, fedrolex, fjord, scalefl
from heterophony.parts import Cohort, Compound, Narrow, Order, Shallow, Training
from heterophony.parts.exits import FromTheLast, MutualExits
from heterophony.parts.ordered import Distilled, Ordered
from heterophony.parts.slices import narrowed
from heterophony.runs.exported import load, save
from heterophony.runs.run import Run
from heterophony.settings import Setting, SettingError, assemble
from heterophony.studies.comparison import planned_runs
from toys.by_hand import equal, server, squared
from toys.deployed import CASES, rows
from toys.federations import B16, RANKS, SOME, WIDTHS, sliced_star, weights_star
from toys.world import halves, net, normed

PLAIN_MEAN = Cohort(weighted=False)
PLAIN = {"cut": Narrow(), "masking": False, "static": False}


# -- limits ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("network", [None, normed])
def test_heterofl_with_everyone_at_full_width_is_fedavg_to_the_bit(network):
    """The masked loss, the scaler and static BatchNorm are off."""
    cohort = Cohort(fraction=0.67)  # weighted by examples
    sliced = local(sliced_star(HeteroFL(local=B16, cohort=cohort, **PLAIN), network, {})).run(4)
    plain = local(weights_star(FedAvg(local=B16, cohort=cohort), network)).run(4)
    assert equal(server(sliced), server(plain))
    assert sliced.clock == plain.clock


def test_fedrolex_with_everyone_at_full_width_is_heterofl_to_the_bit():
    rolled, still = fedrolex(local=B16), HeteroFL(cut=Narrow(), local=B16)
    assert equal(
        server(local(sliced_star(rolled, None, {})).run(3)), server(local(sliced_star(still, None, {})).run(3))
    )


def test_rolling_and_still_slices_are_the_same_in_the_first_round_only():
    rolled, still = fedrolex(local=B16), HeteroFL(cut=Narrow(), local=B16)
    for rounds, same in ((1, True), (2, False)):
        one, other = (server(local(sliced_star(method)).run(rounds)) for method in (rolled, still))
        assert equal(one, other) is same


def test_a_half_for_all_is_fedavg_on_a_network_of_half_the_width():
    """`smallest` cuts the server's network too; without a scaler it is an ordinary small network."""
    federation = sliced_star(HeteroFL(local=B16, **PLAIN), None, {"c0": Capacity(0.5)})
    plain = weights_star(FedAvg(local=B16, cohort=PLAIN_MEAN), lambda: narrowed(net()(), 0.5))
    assert federation.smallest().capacity == {"": Capacity(0.5)}
    assert equal(server(local(federation.smallest()).run(2)), server(local(plain).run(2)))


def test_depthfl_at_full_depth_without_distillation_is_fedavg_on_a_network_with_exits():
    method = depthfl(Shallow(2), distil=0.0, local=B16)
    sliced = local(sliced_star(method, halves(), {})).run(2)

    def build():
        return Shallow(2)(halves()(), Capacity(), Capacity())

    plain = weights_star(FedAvg(local=B16, loss=MutualExits(0.0), cohort=PLAIN_MEAN), build)
    assert equal(server(sliced), server(local(plain).run(2)))


def test_scalefl_at_full_width_has_the_slices_of_depthfl():
    capacity = {"c1": Capacity(depth=1)}
    deep = sliced_star(depthfl(Shallow(2), local=B16), halves(), capacity)
    both = sliced_star(scalefl(Compound(2), local=B16), halves(), capacity)
    for node in ("server", "c0", "c1"):
        assert deep.node(node).slots["model"].form == both.node(node).slots["model"].form


def test_fjord_with_one_level_is_heterofl_without_scaler_and_masks():
    """There is one width to draw, the client's own. A slice then teaches itself, which moves nothing."""
    ordered = local(sliced_star(fjord(Order((1.0,)), local=B16))).run(2)
    plain = local(sliced_star(HeteroFL(local=B16, **PLAIN))).run(2)
    found = {name.removeprefix("inner."): t for name, t in server(ordered).items()}
    for name, tensor in server(plain).items():
        assert torch.allclose(found[name], tensor, atol=1e-5)


# -- golden toys -------------------------------------------------------------------------------------------------------
def test_golden_heterofl_on_two_units():
    """Two hidden units, weights 1 and 1, then 1 and 1, and no bias: the output for x = 1 is the number of units.

    The loss is (out - y)^2 / 2, one full-batch step of rate 0.1, y = 0. With both units the output is 2, so that each
    of the four weights moves by 0.1 * 2 * 1 = 0.2 to 0.8. With one unit it is 1: both weights of that unit move by 0.1
    to 0.9. The first unit is of both clients: (0.8 + 0.9) / 2 = 0.85. The second is of the whole's client: 0.8.
    """

    def build():
        made = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        for parameter in made.parameters():
            nn.init.ones_(parameter)
        return made

    data = {c: {"train": Data(x=torch.ones(1, 1), y=torch.zeros(1, 1))} for c in ("c0", "c1")}
    models = {role: {"model": build} for role in ("server", "client")}
    method = HeteroFL(loss=squared, local=Training(batch=None, lr=0.1), **PLAIN)
    federation = Federation(method, star(["c0", "c1"]), models, data, capacity={"c1": Capacity(0.5)})
    found = server(local(federation).run(1))
    assert torch.allclose(found["0.weight"].flatten(), torch.tensor([0.85, 0.8]))
    assert torch.allclose(found["2.weight"].flatten(), torch.tensor([0.85, 0.8]))
    rolled = server(local(replace(federation, method=fedrolex(loss=squared, masking=False, static=False,
                                                             local=Training(batch=None, lr=0.1)))).run(1))  # fmt: skip
    assert equal(rolled, found)


def test_masked_outputs_are_averaged_over_those_who_have_the_label():
    """Whoever has no row of a label sends a row of the head that was not trained on it: it does not count."""
    federation = sliced_star(HeteroFL(cut=Narrow(), local=B16), None, {})
    rows = federation.data["c0"]["train"]
    some = rows.take((rows.y != 3).nonzero().flatten())
    result = local(replace(federation, data={**federation.data, "c0": {"train": some}})).run(1)
    sent = {name: result.state(name)["models"]["model"]["2.bias"] for name in ("c0", "c1", "c2")}
    expected = torch.stack([sum(sent.values())[label] / 3 for label in range(4)])
    expected[3] = (sent["c1"][3] + sent["c2"][3]) / 2
    assert torch.allclose(server(result)["2.bias"], expected, atol=1e-6)


def exits(many):
    """Outputs of exits for one batch of two rows and three classes."""
    torch.manual_seed(0)
    return tuple(torch.randn(2, 3, dtype=torch.float64) for _ in range(many))


def by_hand_ce(logits, y):
    return -sum(row.log_softmax(-1)[label] for row, label in zip(logits, y, strict=True)) / len(y)


def by_hand_kl(teacher, student):
    total = 0.0
    for one, other in zip(teacher.softmax(-1), student.softmax(-1), strict=True):
        total += sum(p * (p / q).log() for p, q in zip(one, other, strict=True))
    return total / len(teacher)


def test_losses_of_exits_are_plain_loops():
    found, y = exits(3), torch.tensor([0, 2])
    batch, nets = Data(x=torch.zeros(2, 1), y=y), {"model": lambda x: found}
    terms = MutualExits(0.5)(nets, batch)["model"]
    assert torch.isclose(terms["ce"], sum(by_hand_ce(each, y) for each in found))
    pairs = sum(by_hand_kl(found[j], found[i]) for i in range(3) for j in range(3) if i != j)
    assert torch.isclose(terms["kl"], 0.5 * pairs / 2)
    terms = FromTheLast(0.2, 3.0)(nets, batch)["model"]
    task = (1 * 0.8 * by_hand_ce(found[0], y) + 2 * 0.8 * by_hand_ce(found[1], y) + 3 * by_hand_ce(found[2], y)) / 6
    apart = (1 * by_hand_kl(found[2] / 3, found[0] / 3) + 2 * by_hand_kl(found[2] / 3, found[1] / 3)) / 6
    assert torch.isclose(terms["ce"], task)
    assert torch.isclose(terms["kl"], 0.2 * 9 * apart)


def test_loss_of_ordered_dropout_is_a_plain_loop():
    found, y = exits(2), torch.tensor([0, 2])
    terms = Distilled(0.25)({"model": lambda x: found}, Data(x=torch.zeros(2, 1), y=y))["model"]
    assert torch.isclose(terms["ce"], by_hand_ce(found[0], y))
    assert torch.isclose(terms["kl"], 0.25 * by_hand_kl(found[0], found[1]))
    assert torch.isclose(terms["slice"], 0.75 * by_hand_ce(found[1], y))


def test_what_ordered_dropout_draws_is_a_slice_of_the_network():
    """Over many draws the second output is that of each level's slice, and of nothing else."""
    torch.manual_seed(3)
    made = Order((0.25, 0.5, 1.0))(normed_without_dropout(), Capacity(), Capacity())
    assert isinstance(made, Ordered)
    slices = []
    for level in (0.25, 0.5, 1.0):
        torch.manual_seed(3)
        slices.append(narrowed(normed_without_dropout(), level))
    x, seen = torch.randn(6, 8), set()
    for _ in range(30):
        whole, drawn = made(x)
        assert torch.allclose(whole, slices[2](x), atol=1e-5)
        alike = [torch.allclose(drawn, each(x), atol=1e-5) for each in slices]
        assert any(alike)
        seen.add(alike.index(True))
    assert seen == {0, 1, 2}


def normed_without_dropout():
    return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


# -- the door ----------------------------------------------------------------------------------------------------------
def test_a_wrong_slice_is_refused_and_its_sender_named():
    """A client of half the width sends one row of each tensor, which could be added to any number of rows."""
    federation = sliced_star(HeteroFL(local=B16, **PLAIN))
    attack = Attack(who=("c1",), how=one_row)
    result = local(replace(federation, attack=attack)).run(2)
    refused = [row for row in result.ledger.incidents if row["incident"] == "refused"]
    assert len(refused) == 2
    assert all(
        "from c1" in row["detail"] and "0.weight has shape (1, 8), expected (6, 8)" in row["detail"] for row in refused
    )


def one_row(lie):
    return {"weights": {name: tensor[:1] for name, tensor in lie.send.body["weights"].items()}}


def test_a_slice_of_another_width_is_refused_at_the_door():
    federation = sliced_star(HeteroFL(local=B16, **PLAIN))
    sliced = federation.slicing.held("server", "c1", "model")
    assert sliced.weights == federation.node("c1").slots["model"].form
    assert sliced.weights != federation.node("c2").slots["model"].form
    field = HeteroFL.kinds[1].fields["weights"]
    shape = Shape(sent=lambda model: federation.slicing.held("server", "c1", model))
    field.fits(federation.node("c1").weights(), shape)
    with pytest.raises(Refused, match=r"0.weight has shape \(3, 8\), expected \(6, 8\)"):
        field.fits(federation.node("c2").weights(), shape)
    with pytest.raises(Refused, match="does not know which slice"):
        field.fits(federation.node("c1").weights(), Shape())


# -- time, statistics, capacity ----------------------------------------------------------------------------------------
def test_virtual_time_is_by_what_a_slice_costs():
    """8 inputs, 12 units, 4 outputs: 144 multiplications. Of 6 units 72: half. c1 has 48 rows, of 1 ms each."""
    profiles = {"": Profile(seconds_per_sample=1e-3)}
    result = local(sliced_star(HeteroFL(local=B16, **PLAIN), None, {"client": Capacity(0.5)}, profiles=profiles)).run(1)
    assert result.clock == pytest.approx(56e-3 / 2)  # c2 has most rows


def test_statistics_of_slices_are_no_parts_of_those_of_the_whole():
    with pytest.raises(Exception, match="set static=true"):
        local(sliced_star(HeteroFL(local=B16, **PLAIN), normed)).run(1)
    with pytest.raises(Exception, match="nobody holds the whole network"):
        local(sliced_star(HeteroFL(local=B16), normed, {"client": Capacity(0.5)})).run(1)


def test_static_statistics_are_those_of_the_rows_in_the_merged_network():
    """Of the clients that hold the whole, pooled by rows: as if one had all their rows. Biased by batches a little."""
    capacity = {"c2": Capacity(0.5)}
    method = HeteroFL(local=Training(batch=None, lr=0.05))
    federation = sliced_star(method, normed_without_dropout, capacity)
    result = local(federation).run(2)
    net, state = normed_without_dropout(), server(result)
    net.load_state_dict(state)
    rows = torch.cat([federation.data[c]["train"].x for c in ("c0", "c1")])
    hidden = net[0](rows)
    assert torch.allclose(state["1.running_mean"], hidden.mean(0), atol=1e-5)
    assert torch.allclose(state["1.running_var"], hidden.var(0), rtol=0.05)


def test_capacity_of_an_unknown_node_is_refused():
    with pytest.raises(ValueError, match="capacity: no node or role is called 'c9'"):
        sliced_star(HeteroFL(), None, {"c9": Capacity(0.5)})


def test_slices_are_of_one_network():
    federation = sliced_star(HeteroFL(local=B16))
    models = {**federation.models, "c1": {"model": net(16)}}
    with pytest.raises(ValueError, match="averages weights of one shape"):
        replace(federation, models=models).check()


RANKED = {"factory": halves(), "capacity": RANKS}
ANOTHER = {
    "slices": (HeteroFL(local=B16), fedrolex(local=B16), {}),
    "no slices": (HeteroFL(local=B16), FedAvg(local=B16), {}),
    "no adapters": (HetLoRA(local=B16), FedAvg(local=B16), RANKED),
    "slices for adapters": (FedSALoRA(local=B16), HeteroFL(local=B16), RANKED),
}


@pytest.mark.parametrize("case", ANOTHER)
def test_a_federation_with_another_method_has_its_networks_cut_anew(case):
    """Nothing is cut twice, and what no method cuts is whole."""
    first, then, options = ANOTHER[case]
    changed = replace(sliced_star(first, **options), method=then)
    assert local(changed).run(1).digest == local(sliced_star(then, **options)).run(1).digest
    once_more = replace(changed, seed=changed.seed)
    assert local(once_more).run(1).digest == local(changed).run(1).digest


def test_networks_with_frozen_parts_are_not_cut():
    """Frozen weights never travel, so that a slice that moves, or an adapter on them, would be wrong without a word."""
    with pytest.raises(ValueError, match=r"0\.bias is frozen, and a network of which slices are cut"):
        local(sliced_star(HeteroFL(local=B16), lambda: freeze(net()(), "0"))).run(1)
    for method, setting in (("hetlora", "digits-ranks"), ("fedrolex", "digits-widths"), ("depthfl", "digits-depths")):
        with pytest.raises(SettingError, match=f"models.frozen: {method} cuts slices of networks"):
            assemble(method, setting, changes={"models.frozen": "body.0", "models.weights": "w.safetensors"})


def test_slices_go_on_where_some_are_not_asked():
    result = local(sliced_star(fedrolex(local=B16, cohort=SOME), None, WIDTHS)).run(4)
    assert not result.ledger.incidents


# -- between organisations ---------------------------------------------------------------------------------------------
def test_a_plan_says_what_each_organisation_holds():
    """The coordinator checks by the plan what it is sent, and has no network of the organisation."""
    options = {"cut": {"scaler": False}, "masking": False, "local": {"batch": 16}}
    case = replace(CASES["fedavg"], name="heterofl", options=options)
    plan = case.plan(capacity={"north": {"width": 0.5}})
    own = Model(lambda: net(99)())  # what an organisation has besides does not matter
    at_home = plan.organisation("north", own, rows("north")).node("north").slots["model"].form
    assert at_home["0.weight"][0] == (6, 8)
    assert plan.coordinator().slicing.held("server", "north", "model").weights == at_home
    assert plan.coordinator().slicing.held("server", "south", "model").weights["0.weight"][0] == (12, 8)
    assert plan.digest != case.plan().digest


# -- settings ----------------------------------------------------------------------------------------------------------
def test_a_setting_says_it_dealt_round_by_name_or_by_profile():
    found = {}
    for name, changes in {
        "dealt": {"models.width": [1.0, 0.5]},
        "named": {"models.width": {"M20": 0.5, "*": 1.0}},
        "profile": {"models.width": 1.0, "profiles": {"M20": {"width": 0.5}}},
    }.items():
        made = assemble("heterofl", "digits-widths", changes=changes)
        found[name] = {n: made.capacity_of(n).width for n in ("server", "M0", "M20")}
    assert found["dealt"] == found["named"] == found["profile"] == {"server": 1.0, "M0": 1.0, "M20": 0.5}
    small = assemble("heterofl", "digits-widths", changes={"models.smallest": True})
    assert {small.capacity_of(n).width for n in ("server", "M0", "M60")} == {0.25}
    with pytest.raises(SettingError, match=r"models\.width: no participant is called 'M21'"):
        assemble("heterofl", "digits-widths", changes={"models.width": {"M21": 0.5}})
    with pytest.raises(SettingError, match=r"a width is a share in \(0, 1\], got 2"):
        assemble("heterofl", "digits-widths", changes={"models.width": 2.0})


def test_an_exported_slice_is_built_again(tmp_path):
    made = assemble("heterofl", "digits-widths", changes={"local.steps": 1, "data.rows": 60, "evaluate": 9})
    made.run(1, tmp_path / "run", quiet=True)
    for node, channels in (("server", 6), ("M20", 3)):
        save(tmp_path / "run", node, tmp_path / "model.safetensors")
        module, _ = load(tmp_path / "model.safetensors")
        assert next(module.parameters()).shape[0] == channels
    text = json.dumps(Run.spec(tmp_path / "run")["recipe"]["networks"]["M20"])
    assert "heterophony.parts.slices:Narrow" in text


def test_compare_sets_the_smallest_for_all_beside_the_first_method_that_cuts(tmp_path):
    setting = Setting.load("digits-widths")
    runs = planned_runs(["fedavg", "heterofl", "fjord"], setting, seeds=[0], folder=tmp_path)
    assert [run.label for run in runs] == ["fedavg", "heterofl", "fjord", "heterofl-smallest"]
    assert runs[-1].changes == {"models.smallest": True}
    same = setting.changed({"models.width": 0.5})
    assert len(planned_runs(["fedavg", "heterofl"], same, seeds=[0], folder=tmp_path)) == 2
