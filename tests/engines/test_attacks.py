"""Participants that lie: what they send, that every engine sends the same, who is blamed, and who is put out."""

from dataclasses import replace

import pytest
import torch

from heterophony import Attack
from heterophony.engines import local, process
from heterophony.methods import DSFL, QFFL, FedAvg, FedMD, FedNova
from heterophony.parts.cohort import Cohort
from heterophony.parts.lies import TRICKS, attack, half_triggered, other_labels, triggered
from heterophony.runs.findings.doubts import Doubted
from heterophony.runs.findings.finding import Evidence
from heterophony.runs.findings.liars import Liars
from heterophony.settings.assemble import assemble
from heterophony.settings.setting import SettingError
from toys.federations import B16, METHODS, logits_star, weights_star
from toys.watched import sent
from toys.world import points

AVERAGE = FedAvg(local=B16)
DATA_ONLY = ("label-flip",)


def honest_and_lied(how, method=AVERAGE, kind="update", star=weights_star, **options):
    """Return what all nodes hear in the first round, what c0 would have sent, and what it sends."""
    told = [m for m in sent(star(method), kind, 1) if m.sender == "c0"]
    lied = [m for m in sent(star(method, attack=attack(how, ["c0"], **options)), kind, 1) if m.sender == "c0"]
    return told[0], lied[0]


def step(message, start):
    return {name: tensor - start[name] for name, tensor in message.weights.items()}


@pytest.mark.parametrize(("how", "factor"), [("sign-flip", -3.0), ("ipm", -0.5), ("free-rider", 0.0)])
def test_a_lie_about_weights_is_a_step_the_other_way_or_none(how, factor):
    start = sent(weights_star(AVERAGE), "global", 1)[0].weights
    told, lied = honest_and_lied(how)
    expected = {name: start[name] + factor * own for name, own in step(told, start).items()}
    assert all(torch.allclose(lied.weights[name], expected[name], atol=1e-6) for name in expected)
    assert lied.examples == told.examples


def test_noise_is_as_large_as_it_is_told_to_be():
    start = sent(weights_star(AVERAGE), "global", 1)[0].weights
    told, lied = honest_and_lied("gaussian", scale=7.0)
    for name, own in step(told, start).items():
        ratio = float(step(lied, start)[name].norm() / own.norm())
        assert 2 < ratio < 14


def test_a_little_is_enough_stays_so_many_deviations_off_the_liars_own_mean():
    """By hand: the liar's last three steps have a mean and a deviation; the first round has none, and is honest."""
    told, lied = honest_and_lied("alie")
    assert all(torch.allclose(told.weights[name], lied.weights[name], atol=1e-6) for name in told.weights)
    federation = weights_star(AVERAGE, attack=attack("alie", ["c0"], scale=2.0))
    heard, said = [], []
    for m in [*sent(federation, "global", 3), *sent(federation, "update", 3)]:
        if m.kind == "global" and m.receiver == "c0":
            heard.append(m.weights)
        if m.kind == "update" and m.sender == "c0":
            said.append(m.weights)
    past = local(federation).run(3).state("c0")["past"]["update"]["weights"]
    stacked = torch.stack([own["0.weight"] for own in past])
    expected = heard[2]["0.weight"] + stacked.mean(0) - 2.0 * stacked.std(0, correction=0)
    assert torch.allclose(said[2]["0.weight"], expected, atol=1e-6)


def test_soft_labels_stay_probabilities_and_are_wrong():
    method = DSFL(local=B16, distil=B16)
    for how in ("sign-flip", "soft-labels", "gaussian"):
        told, lied = honest_and_lied(how, method, "predictions", logits_star)
        assert torch.allclose(lied.probabilities.sum(-1), torch.ones(len(lied.probabilities)), atol=1e-5)
        agree = (told.probabilities.argmax(-1) == lied.probabilities.argmax(-1)).float().mean()
        assert agree < (0.05 if how != "gaussian" else 0.7)


QUICK = ("nan", "backdoor", "alie")


@pytest.mark.parametrize("how", [how if how in QUICK else pytest.param(how, marks=pytest.mark.slow) for how in TRICKS])
def test_engines_agree_on_every_lie_and_a_resumed_run_lies_alike(how, tmp_path):
    federation = weights_star(AVERAGE, attack=attack(how, ["c0"]))
    one, other = local(federation).run(3), process(federation).run(3)
    assert one.digest == other.digest
    assert one.ledger.incidents == other.ledger.incidents
    federation.run(1, tmp_path / "run")
    assert federation.resume(tmp_path / "run", 3).digest == one.digest


def test_liars_are_honest_before_their_round():
    federation = weights_star(AVERAGE, attack=attack("sign-flip", ["c0"], since=2))
    assert local(federation).run(2).digest == local(weights_star(AVERAGE)).run(2).digest
    assert local(federation).run(3).digest != local(weights_star(AVERAGE)).run(3).digest


def test_a_lie_is_any_function_of_a_message():
    def twice(lie):
        return {"examples": 2 * lie.send.body["examples"]}

    federation = weights_star(AVERAGE, attack=Attack(("c1",), twice))
    said = {m.sender: m.examples for m in sent(federation, "update", 1)}
    plain = {m.sender: m.examples for m in sent(weights_star(AVERAGE), "update", 1)}
    assert said == {**plain, "c1": 2 * plain["c1"]}
    assert federation.identity()["attack"]["how"].endswith("twice")


def test_labels_are_flipped_and_rows_are_triggered_where_liars_train_alone():
    data = points("here")
    assert torch.equal(other_labels(data).y, data.classes - 1 - data.y)
    half, all_of_them = half_triggered(data), triggered(data)
    assert torch.equal(half.x[1::2], data.x[1::2])
    assert set(half.y[::2].tolist()) == set(all_of_them.y.tolist()) == {0}
    assert len(all_of_them) == int((data.y != 0).sum())
    assert float(all_of_them.x[:, -3:].min()) == float(data.x[data.y != 0].max())
    federation = weights_star(AVERAGE, attack=attack("label-flip", ["c0"]))
    assert torch.equal(
        federation.node("c0").data["train"].y, other_labels(weights_star(AVERAGE).node("c0").data["train"]).y
    )
    assert torch.equal(federation.node("c1").data["train"].y, weights_star(AVERAGE).node("c1").data["train"].y)


def test_a_backdoors_success_is_measured_on_the_honest_and_told():
    federation = weights_star(AVERAGE, attack=attack("backdoor", ["c0"]))
    found = local(federation).run(3)
    spec = federation.identity()
    finding = Liars.of(Evidence(spec, found.table, found.ledger))
    rows = found.table.select(split="backdoor", quantity="accuracy", product="global").last().rows
    assert finding.value["success"] == sum(row["sum"] for row in rows) / sum(row["n"] for row in rows)
    assert finding.value["success"] > 0.5
    assert "the trigger was believed in" in finding.lines(None)[0]
    plain = local(weights_star(AVERAGE)).run(1)
    assert Liars.of(Evidence(weights_star(AVERAGE).identity(), plain.table, plain.ledger)) is None


def test_what_is_no_attack_is_one_line():
    for bad, said in (
        ({"how": "sign-flop"}, "there is no 'sign-flop', perhaps you meant 'sign-flip'"),
        ({"how": "free-rider", "scale": 2.0}, "free-rider takes no scale"),
        ({"how": "label-flip", "since": 2}, "label-flip changes data, which it does from round 0 on"),
    ):
        with pytest.raises(ValueError, match=said):
            attack(**{"who": ["c0"], **bad})
    with pytest.raises(ValueError, match="attack: no node is called 'c9'"):
        weights_star(AVERAGE, attack=attack("nan", ["c9"]))
    with pytest.raises(ValueError, match="who are names of nodes"):
        Attack("c0", print)


# -- who is blamed, and what becomes of them ---------------------------------------------------------------------
STALLED = ("scaffold", "fedkd-whole", "fedavgm", "bhfl", "bhfl-overlap", "bhfl-all-async", "fedbuff")
ROWS = {row.name: row for row in METHODS}


@pytest.mark.parametrize("name", STALLED)
def test_with_a_bound_the_huge_values_of_a_liar_are_refused_and_the_others_go_on(name):
    """Without a bound these runs end: sums of values that the door takes exceed what it takes."""
    row = ROWS[name]
    made = row.build()
    liar = "l0" if "l0" in made.topology.roles else "c0"
    federation = replace(made, attack=attack("huge", [liar]), bound=1e6)
    found = local(federation, **row.options).run(8)
    blamed = [i["detail"] for i in found.ledger.incidents if i["incident"] in ("refused", "unsound")]
    assert blamed
    assert all(f" from {liar}: " in detail for detail in blamed)
    assert found.rounds == 8


def test_a_participant_is_put_out_after_so_many_messages_and_asked_nothing_more():
    federation = weights_star(AVERAGE, attack=attack("nan", ["c0"]), expel=2)
    one, other = local(federation).run(5), process(federation).run(5)
    assert one.digest == other.digest
    (put,) = (row for row in one.ledger.incidents if row["incident"] == "put out")
    assert put["detail"] == "c0 from round 2 on: 2 of its messages were refused or doubted"
    asked = [row["round"] for row in one.ledger.messages if row["to"] == "c0" and row["status"] == "sent"]
    assert asked == [0, 1]


@pytest.mark.parametrize(("name", "liar"), [("fedproto", "c0"), ("bhfl", "l0")])
def test_nobody_is_put_out_for_what_it_was_sent(name, liar):
    """Without a bound, a liar's huge values reach the others, and what these send is refused. The cause is not they."""
    row = ROWS[name]
    federation = replace(row.build(), attack=attack("huge", [liar]), expel=2)
    found = local(federation, **row.options).run(6)
    assert {i["incident"] for i in found.ledger.incidents} == {"refused"}
    assert found.rounds == 6


def test_half_precision_bears_huge_values():
    row = ROWS["fedmd"]
    assert any(kind.name == "logits" for kind in row.build().method.kinds)
    found = local(replace(row.build(), attack=attack("huge", ["c0"])), **row.options).run(2)
    assert found.rounds == 2


def test_a_lie_about_a_field_that_a_message_does_not_have_is_one_line():
    federation = weights_star(AVERAGE, attack=Attack(("c1",), lambda lie: {"exmples": 1.0}, name="typo"))
    with pytest.raises(Exception, match="typo changes 'exmples', which 'update' does not have"):
        local(federation).run(1)


def test_doubted_messages_put_out_the_liar_alone_and_a_resumed_run_knows(tmp_path):
    method = FedMD(local=B16, distil=B16, cohort=Cohort(combine="median"))
    federation = logits_star(method, attack=attack("huge", ["c2"]), expel=3)
    whole = local(federation).run(5)
    federation.run(2, tmp_path / "run")
    assert federation.resume(tmp_path / "run", 5).digest == whole.digest
    assert [row["detail"].partition(" ")[0] for row in whole.ledger.incidents if row["incident"] == "put out"] == ["c2"]
    finding = Doubted.of(Evidence(federation.identity(), whole.table, whole.ledger))
    assert finding.value == {"c2": 3}
    assert finding.lines(None)[0].startswith("DOUBTED: far from the rest was what came of c2 (3 messages)")


SMALLEST = 5e-324


@pytest.mark.parametrize(("method", "field"), [(FedNova(local=B16), "reach"), (QFFL(local=B16), "rate")])
def test_a_number_that_is_nearly_zero_ends_no_run(method, field):
    """A server divides by it: what it says is that its sender has learnt nothing."""
    tiny = Attack(["c0"], lambda lie: {**lie.send.body, field: SMALLEST})
    none = Attack(["c0"], lambda lie: {**lie.send.body, field: 0.0})
    found, expected = (local(weights_star(method, attack=each)).run(3) for each in (tiny, none))
    assert found.rounds == 3
    assert not [row for row in found.ledger.incidents if row["incident"] != "attack"]
    assert found.digest == expected.digest


def test_a_bound_and_a_number_that_make_no_sense_are_one_line():
    with pytest.raises(ValueError, match="bound is a number > 0 and at most 1e"):
        weights_star(AVERAGE, bound=0.0)
    with pytest.raises(ValueError, match="expel is a number of messages >= 1, got 0"):
        weights_star(AVERAGE, expel=0)


# -- in a setting ------------------------------------------------------------------------------------------------
def test_a_setting_says_who_lies(tmp_path):
    made = assemble("fedavg", "rotated-mnist", changes={"attack.how": "sign-flip", "attack.who": 0.5, "bound": 100.0})
    assert made.attack.told()["how"] == "sign-flip"
    assert len(made.attack.who) == round(0.5 * len(made.homes))
    assert made.bound == 100.0
    again = assemble("fedavg", "rotated-mnist", changes={"attack.how": "nan", "attack.who": 0.5})
    assert again.attack.who == made.attack.who
    assert assemble("fedavg", "rotated-mnist", seed=1, changes={"attack.how": "nan", "attack.who": 1}).attack.told()[
        "who"
    ]
    with pytest.raises(SettingError, match="there is no 'sing-flip'"):
        assemble("fedavg", "rotated-mnist", changes={"attack.how": "sing-flip", "attack.who": 0.5})
    with pytest.raises(SettingError, match="share in"):
        assemble("fedavg", "rotated-mnist", changes={"attack.how": "nan", "attack.who": 1.5})
