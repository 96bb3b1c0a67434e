"""What leaves a node is clipped, noised and charged; without a budget left it stays, and the round goes on."""

import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("dp_accounting")

from heterophony import Counts, Federation, Kind, Logits, PerClass, Privacy, Probabilities, Scalar, Weights
from heterophony.base.noise import Seeded, System
from heterophony.engines import local, process
from heterophony.engines.outward import anchors, mean, noised
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Message
from heterophony.kernel.privacy import Charge
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedBuff, FedProto, Scaffold
from heterophony.parts import Cohort, Training
from heterophony.runs import show
from heterophony.runs.summary import Summary
from toys import world
from toys.federations import bhfl, hierarchy

NAMES = ("a", "b", "c")
SMALL = Privacy(clip=0.5, noise=4.0, delta=1e-3, budget=1e3)
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))


class Silent:
    """Noise of zeros, so that what was clipped can be seen."""

    def normal(self, n):
        return torch.zeros(n, dtype=torch.float64)


def federation(privacy, method=None, model=None, **options):
    model = model or {"model": world.net(6)}
    views = {name: {"train": own["train"]} for name, own in world.private(list(NAMES)).items()}
    method = method or FedAvg(local=Training(batch=16), cohort=Cohort(weighted=False))
    names = {"client": model, "server": model}
    return Federation(method, star(NAMES), names, views, tests=world.TESTS, seed=5, privacy=privacy, **options)


def sent(run, kind="update"):
    return [row for row in run.ledger.rows if row["kind"] == kind]


def digests(result):
    return [result.host.digest(node).hex() for node in ("server", *NAMES)]


# -- one message -------------------------------------------------------------------------------------------------
def test_weights_are_clipped_as_the_difference_from_what_was_received():
    received = {"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])}
    own = {"w": torch.tensor([4.0, 2.0]), "b": torch.tensor([7.0])}  # a difference of (3, 0, 4): of length 5
    mail = Message("global", "server", "a", 0, (1, 0), UPDATE(weights=received, examples=1.0).body)
    body = UPDATE(weights=own, examples=40.0).body
    made = noised(UPDATE, body, replace(SMALL, clip=1.0), anchors(UPDATE, mail), Silent())
    assert torch.allclose(made["weights"]["w"], torch.tensor([1.6, 2.0]))
    assert torch.allclose(made["weights"]["b"], torch.tensor([3.8]))
    assert made["examples"] == 1.0
    short = noised(UPDATE, body, replace(SMALL, clip=5.5), anchors(UPDATE, mail), Silent())
    assert all(torch.equal(short["weights"][name], own[name]) for name in own)


def test_a_change_of_weights_is_clipped_as_it_is():
    kind = Kind("delta", to="parent", weights=Weights("model", change=True))
    mail = Message("global", "s", "a", 0, (1, 0), kind(weights={"w": torch.tensor([100.0])}).body)
    assert anchors(kind, mail) == {}
    made = noised(kind, kind(weights={"w": torch.tensor([3.0])}).body, replace(SMALL, clip=2.0), {}, Silent())
    assert made["weights"]["w"].item() == 2.0


def test_noise_has_the_deviation_that_was_asked_for_and_what_is_noised_still_fits_its_kind():
    privacy = Privacy(clip={"x": 2.0, "p": 1.0, "m": 1.5, "n": 30.0, "s": 3.0}, noise=0.5, delta=1e-3, budget=1e9)
    kind = Kind("all", to="parent", x=Logits, p=Probabilities, m=PerClass(rows="n"), n=Counts, s=Scalar(low=0, high=2))
    body = kind(
        x=torch.zeros(4000, 3), p=torch.full((50, 4), 0.25), m=torch.randn(6, 8), n=torch.full((6,), 9.0), s=1.0
    ).body
    for source in (Seeded(1), System()):
        made = noised(kind, body, privacy, {}, source)
        assert made["x"].std().item() == pytest.approx(1.0, abs=0.03)  # noise * clip
        assert kind.verdict(made) == ""
        assert (made["m"][made["n"] == 0] == 0).all()
        assert 0 <= made["s"] <= 2


@pytest.mark.parametrize("source", [Seeded(3), System()])
def test_sources_are_uniform_and_normal(source):
    drawn, noise = source.uniform(20_000), source.normal(20_000)
    assert 0 <= drawn.min() <= drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.015
    assert abs(noise.mean()) < 0.04
    assert abs(noise.std() - 1) < 0.03
    assert abs((noise.abs() < 1.96).double().mean() - 0.95) < 0.01
    assert source.normal(0).shape == (0,)


def test_several_fields_of_a_message_are_one_mechanism_together():
    kind = Kind("two", to="parent", m=PerClass, n=Counts)
    charge = replace(SMALL, noise=6.0).charge(kind)
    # two fields, each moved by at most twice its clip: a vector of length 2 * sqrt(2), in units of noise / 6
    assert charge == Charge("two", 6.0 / (2 * math.sqrt(2)))
    assert SMALL.charge(UPDATE) == Charge("update", 2.0)
    assert SMALL.charge(Kind("ask", to="children")) is None


# -- runs --------------------------------------------------------------------------------------------------------
def test_both_engines_draw_the_same_noise_and_a_resumed_run_too(tmp_path):
    made = federation({"client": SMALL})
    assert digests(process(made).run(1)) == digests(local(made).run(1))
    here = local(made).run(2)
    made.run(1, tmp_path / "run")
    assert digests(made.resume(tmp_path / "run", 2)) == digests(here)
    assert digests(local(federation({})).run(2)) != digests(here)


def test_noise_does_not_follow_from_the_round_that_a_coordinator_says():
    made = federation({"client": SMALL})
    node = made.node("a")
    door = local(made).host.outward
    first = door.account.source(node, "update").normal(4)
    again = door.account.source(node, "update").normal(4)  # in the same round
    assert not torch.equal(first, again)
    node.account.clear()
    node.round = 7
    assert torch.equal(door.account.source(node, "update").normal(4), first)


def test_a_release_that_would_overdraw_is_withheld_said_once_and_the_round_goes_on(caplog):
    three = epsilon_of(composed([Charge("update", 2.0, times=3)]), 1e-3)
    run = local(federation({"a": replace(SMALL, budget=three * 1.001)})).run(5)
    assert run.rounds == 5
    status = [row["status"] for row in sent(run) if row["from"] == "a"]
    assert status == ["sent"] * 3 + ["withheld"] * 2
    assert {row["status"] for row in sent(run) if row["from"] != "a"} == {"sent"}
    assert [r.getMessage() for r in caplog.records if r.name == "heterophony.privacy"] == [
        "a: the privacy budget is spent: what would overdraw it is withheld from now on"
    ]
    charges = run.host.state("a")["account"]["charges"]
    assert [tuple(one) for one in charges] == [("update", 2.0, 1.0, 3)]


def test_the_table_and_the_summary_say_how_much_was_told(tmp_path):
    made = federation({"client": SMALL})
    run = made.run(3, tmp_path / "run")
    rows = [row for row in run.table.rows if row["quantity"] == "epsilon" and row["node"] == "a"]
    charges = [Charge("update", 2.0, times=n) for n in (1, 2, 3)]
    assert [row["sum"] for row in rows] == [epsilon_of(composed([charge]), 1e-3) for charge in charges]
    summary = Summary.load(tmp_path / "run")
    assert summary.as_json()["privacy"]["epsilon"]["b"] == rows[-1]["sum"]
    said = f"privacy: epsilon {rows[-1]['sum']:.4g} spent by a, the most of 3 nodes"
    assert said in show.lines(summary)


def test_what_the_egress_policy_withholds_costs_nothing():
    run = local(federation({"a": SMALL}, egress={"a": ()})).run(2)
    assert "account" not in run.host.state("a")


def test_without_privacy_no_state_names_it_and_no_door_is_built():
    run = local(federation({})).run(1)
    assert run.host.outward is None
    assert all("account" not in run.host.state(node) for node in NAMES)


def test_a_trusted_server_reads_the_noised_mean_in_place_of_each_message():
    own = {"w": torch.zeros(2)}
    bodies = [
        UPDATE(weights={"w": torch.tensor(w)}, examples=n).body for w, n in (([3.0, 4.0], 5.0), ([0.0, 0.5], 9.0))
    ]
    mail = Inbox(Message("update", name, "server", 0, (1, 0), body) for name, body in zip("ab", bodies, strict=True))
    privacy = Privacy(clip=1.0, noise=2.0, delta=1e-3, budget=99, central=True)
    exact = mean(UPDATE, mail, privacy, {"weights": own}, Silent())
    assert torch.allclose(exact["weights"]["w"], torch.tensor([0.3, 0.65]))  # of (0.6, 0.8) and (0, 0.5)
    drawn = mean(UPDATE, mail, privacy, {"weights": own}, Seeded(4))
    noise = Seeded(4).normal(2)
    assert torch.allclose(drawn["weights"]["w"], (torch.tensor([0.3, 0.65]) + 2.0 * 1.0 / 2 * noise).float())
    assert exact["examples"] == 1.0


def test_central_clips_and_noise_are_those_of_pfl_research():
    pytest.importorskip("pfl")
    from pfl.internal.ops import pytorch_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.stats import MappedVectorStatistics

    set_framework_module(pytorch_ops)
    mechanism, own = GaussianMechanism(0.7, 0.5), {"w": torch.zeros(3), "b": torch.zeros(1)}
    updates = [{n: torch.randn(t.shape, generator=world.generator("pfl", n, i)) for n, t in own.items()} for i in "abc"]
    theirs = [mechanism.constrain_sensitivity(MappedVectorStatistics(dict(update)))[0] for update in updates]
    bodies = [UPDATE(weights=update, examples=1.0).body for update in updates]
    mail = Inbox(Message("update", name, "server", 0, (1, 0), body) for name, body in zip("abc", bodies, strict=True))
    privacy = Privacy(clip=0.7, noise=0.5, delta=1e-3, budget=999, central=True)
    ours = mean(UPDATE, mail, privacy, {"weights": own}, Silent())["weights"]
    for name in own:
        assert torch.allclose(ours[name], sum(one[name] for one in theirs) / 3, atol=1e-6)
    noise = mechanism.add_noise(MappedVectorStatistics({"w": torch.zeros(50_000)}), cohort_size=3)[0]["w"] / 3
    wide = {"w": torch.zeros(50_000)}
    silent = [replace(m, body=UPDATE(weights=wide, examples=1.0).body) for m in mail]
    drawn = mean(UPDATE, Inbox(silent), privacy, {"weights": wide}, Seeded(1))["weights"]["w"]
    assert drawn.std().item() == pytest.approx(noise.std().item(), rel=0.03)


def test_central_noise_is_charged_to_the_server_and_clients_send_what_they_have():
    privacy = Privacy(clip=0.5, noise=4.0, delta=1e-3, budget=99, central=True)
    run = local(federation({"server": privacy})).run(2)
    assert [tuple(one) for one in run.host.state("server")["account"]["charges"]] == [("update", 2.0, 1.0, 2)]
    assert all("account" not in run.host.state(node) for node in NAMES)
    tight = replace(privacy, budget=epsilon_of(composed([Charge("update", 2.0)]), 1e-3) * 1.001)
    stopped = local(federation({"server": tight})).run(2)  # the second mean would overdraw: nobody was heard
    assert digests(stopped)[0] == digests(local(federation({"server": tight})).run(1))[0]


def test_each_edge_server_adds_noise_of_its_own_and_what_goes_past_it_is_refused():
    central = Privacy(clip=0.5, noise=4.0, delta=1e-3, budget=99, central=True, kinds=("up",))
    made = hierarchy(bhfl(turns=1))
    run = local(replace(made, privacy={"inner": central})).run(2)
    charges = {edge: run.host.state(edge)["account"]["charges"] for edge in ("e0", "e1")}
    assert all([tuple(one) for one in own] == [("up", 2.0, 1.0, 2)] for own in charges.values())
    assert all("account" not in run.host.state(leaf) for leaf in ("l0", "l3"))
    with pytest.raises(ValueError, match="residual links bring 'far-up' past the mean that central noise is added to"):
        replace(made, privacy={"root": replace(central, kinds=None)})


def test_a_central_delta_is_below_one_over_the_children():
    with pytest.raises(ValueError, match=r"delta = 0\.4 is not below 1 / 3 children"):
        federation({"server": replace(SMALL, delta=0.4, central=True)})


# -- refusals ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"noise": 1, "delta": 1e-5, "budget": 1}, "clip is missing"),
        ({"clip": 0, "noise": 1, "delta": 1e-5, "budget": 1}, "clip is a length > 0, got 0"),
        ({"clip": 1, "noise": -1, "delta": 1e-5, "budget": 1}, "noise is a multiple of the clip > 0, got -1"),
        ({"clip": 1, "noise": 1, "budget": 1}, "delta is a number between 0 and 1, got None"),
        ({"clip": 1, "noise": 1, "delta": 1.5, "budget": 1}, "delta is a number between 0 and 1"),
        ({"clip": 1, "noise": 1, "delta": 1e-5}, "budget is the most epsilon in all"),
        ({"clip": 1, "kinds": (), "delta": 1e-5, "budget": 1}, "no kind is protected"),
    ],
)
def test_what_is_no_privacy_is_refused_in_one_line(given, why):
    with pytest.raises(ValueError, match=why) as found:
        Privacy(**given)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("privacy", "method", "why"),
    [
        (replace(SMALL, kinds=("updates",)), None, "FedAvg has no kind 'updates'; it has global, update"),
        (replace(SMALL, budget=0.1), None, "one 'update' costs epsilon .*, and the budget is 0.1: raise noise"),
        (replace(SMALL, delta=0.1), None, "delta = 0.1 is not below 1 / .* rows.*large_delta"),
        (replace(SMALL, central=True), None, "central noise is for nodes with children"),
        (replace(SMALL, clip={"w": 1.0}), None, "weights of 'update' has no clip of its own: say clip = { weights"),
    ],
)
def test_a_federation_that_cannot_be_private_is_refused_when_built(privacy, method, why):
    with pytest.raises(ValueError, match=why):
        federation({"client": privacy}, method)


def test_central_noise_is_refused_where_mail_is_merged_as_it_comes():
    central = replace(SMALL, central=True, kinds=("delta",))
    with pytest.raises(ValueError, match="central noise needs rounds, and FedBuff merges mail as it comes"):
        federation({"server": central}, FedBuff(buffer=2))


@pytest.mark.parametrize("method", [FedBuff(buffer=2), Scaffold(), FedProto()])
def test_other_kinds_of_message_are_noised_too(method):
    model = {"model": world.halves()} if isinstance(method, FedProto) else None
    run = local(federation({"client": SMALL}, method, model)).run(2)
    assert all(run.host.state(node)["account"]["charges"] for node in NAMES)


def test_a_large_delta_can_be_meant():
    federation({"client": replace(SMALL, delta=0.1, large_delta=True)})
