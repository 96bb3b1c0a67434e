"""A node at home with a privacy budget: paid before it leaves, once for each answer, withheld when it is spent."""

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("dp_accounting")

from deploy.direct import Direct, engine, node_server, node_servers
from deploy.test_budget import Fragile
from heterophony.base import codec
from heterophony.cli.deploying import _held
from heterophony.deploy.budget import Budget
from heterophony.deploy.learnable import IMAGES, learnable
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.node_server import Household, NodeServer
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.organisation import FILE, Organisation
from heterophony.deploy.participant import _check_budget
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.privacy import Charge
from toys.deployed import CASES

FEDAVG = CASES["fedavg"]
DELTA = 1e-3
ONCE = Charge("update", 4.0)  # noise 8, replaced data


def policy(releases=99, **more):
    budget = epsilon_of(composed([ONCE._replace(times=releases)]), DELTA) * 1.0001
    return {
        "metrics": [],
        "digest": False,
        "privacy": {"clip": 1.0, "noise": 8.0, "delta": DELTA, "budget": budget},
        **more,
    }


def own(folder, releases=99, **more):
    return {
        "egress": policy(releases, **more),
        "budget": str(folder / "budgets" / "rows"),
        "witness": str(folder / "witness" / "rows"),
    }


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    courier = Direct(node_servers(FEDAVG, tmp_path_factory.mktemp("undisturbed")))
    engine(FEDAVG, courier).run(FEDAVG.rounds)
    return [data for to, data in courier.questions if to == "north"]


def sends(answer):
    return codec.unpack(answer)["outcome"]["sends"]


def test_an_answer_is_paid_once_however_often_it_is_asked_for(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path, **own(tmp_path))
    first = here.answer(asked[0])
    for _ in range(3):
        assert node_server(FEDAVG, "north", tmp_path, **own(tmp_path)).answer(asked[0]) == first
    assert here.budget.look().charges == (ONCE,)
    plain = node_server(FEDAVG, "north", tmp_path / "plain").answer(asked[0])
    weights, open_weights = sends(first)[0][3]["weights"], sends(plain)[0][3]["weights"]
    noise = torch.cat([(weights[n] - open_weights[n]).flatten() for n in weights])
    assert 6.5 < noise.std() < 9.5  # noise * clip = 8; the update itself is shorter than the clip
    assert sends(first)[0][3]["examples"] == 1.0


def test_noise_at_home_follows_from_nothing(asked, tmp_path):
    one = node_server(FEDAVG, "north", tmp_path / "1", **own(tmp_path / "1")).answer(asked[0])
    two = node_server(FEDAVG, "north", tmp_path / "2", **own(tmp_path / "2")).answer(asked[0])
    assert any(not torch.equal(sends(one)[0][3]["weights"][n], t) for n, t in sends(two)[0][3]["weights"].items())


def test_a_message_that_would_overdraw_is_withheld_and_noted_once(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path, **own(tmp_path, releases=1))
    assert sends(here.answer(asked[0]))[0][3] is not None
    value = codec.unpack(asked[1])
    for number in (2, 3, 4):  # a coordinator that invents rounds gets no more
        value["number"] = number
        answer = codec.unpack(here.answer(codec.pack(value)))
        assert answer["outcome"]["sends"][0][3] is None
        value["round"] = answer["outcome"]["round"]
    assert here.budget.look().charges == (ONCE,)
    assert [row["incident"] for row in here.store.rows("incidents")].count("budget") == 1
    assert [row["status"] for row in here.store.rows("ledger")] == ["sent", "withheld", "withheld", "withheld"]


def test_the_round_goes_on_without_whoever_has_spent_its_budget(tmp_path):
    rounds = 3
    servers = node_servers(FEDAVG, tmp_path, north=own(tmp_path, releases=1))
    plan = FEDAVG.plan(rounds=rounds, pace={"poll": 0.001})
    for server in servers.values():
        server.plan = plan
    run = engine(FEDAVG, Direct(servers), plan=plan).run(rounds)
    assert run.rounds == rounds
    north = [row["status"] for row in run.ledger.rows if row["kind"] == "update" and row["from"] == "north"]
    assert north == ["sent", "withheld", "withheld"]


def test_several_federations_over_the_same_data_spend_from_one_budget(asked, tmp_path):
    first = node_server(FEDAVG, "north", tmp_path / "first", **own(tmp_path, releases=2))
    second = node_server(FEDAVG, "north", tmp_path / "second", **own(tmp_path, releases=2))
    assert sends(first.answer(asked[0]))[0][3] is not None
    assert sends(second.answer(asked[0]))[0][3] is not None
    third = node_server(FEDAVG, "north", tmp_path / "third", **own(tmp_path, releases=2))
    assert sends(third.answer(asked[0]))[0][3] is None
    with pytest.raises(DeployError, match="the privacy budget is spent: no message of north could leave"):
        _check_budget(third.federation, "north", third.budget)


class Dying(Exception):
    pass


def test_a_crash_between_payment_and_answer_costs_twice_and_tells_once(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path, **own(tmp_path))

    def dies(*_, **__):
        raise Dying

    kept, here.store.save = here.store.save, dies
    assert "failed" in codec.unpack(here.answer(asked[0]))
    assert here.budget.look().charges == (ONCE,)  # nothing has left, and it is paid
    here.store.save = kept
    assert sends(here.answer(asked[0]))[0][3] is not None
    assert here.budget.look().charges == (ONCE._replace(times=2),)


def test_an_old_budget_put_back_stops_all_answers(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path, **own(tmp_path))
    old = here.budget.look() and here.budget.file.read_bytes()
    here.answer(asked[0])
    here.budget.file.write_bytes(old)
    assert "failed" in codec.unpack(here.answer(asked[1]))
    assert "is an old one" in here.store.rows("incidents")[-1]["detail"]


def test_check_prints_the_block_and_what_is_left(tmp_path):
    lines = list(_held(Household({"north": node_server(FEDAVG, "north", tmp_path, **own(tmp_path))})))
    assert any(
        "'update' (weights, examples) to parent: may leave, clipped (weights to 1), with noise of 8" in x for x in lines
    )
    assert any(line.startswith("privacy budget ") and "epsilon 0 of " in line for line in lines)
    once = epsilon_of(composed([ONCE]), DELTA)
    assert any(f"could learn from 'update': epsilon {once:.4g} of all rows with each" in line for line in lines)


def test_check_says_what_a_coordinator_could_learn_with_the_figure_of_the_page(tmp_path):
    """For a node that asks for nothing, and for one whose training is private."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "leakage.md").read_text()
    assert f"| undefended | {IMAGES} |" in page
    (line,) = learnable(node_server(FEDAVG, "north", tmp_path))
    assert line.startswith("a coordinator could learn from 'update': nearly the rows themselves")
    assert IMAGES in line
    plan = FEDAVG.plan(options={"local": {"batch": 16, "private": {"clip": 1.0, "noise": 2.0}}})
    policy = {"metrics": [], "digest": False, "privacy": {"kinds": [], "delta": DELTA, "budget": 5.0}}
    made = FEDAVG.organisation("north", budget=str(tmp_path / "b"), egress=policy)
    store = NodeStore(tmp_path / "steps", plan.id)
    here = NodeServer(plan, "north", made.build(plan, "north"), store, made.policy("north"), made.account("north"))
    assert "at most epsilon 5 of each row" in learnable(here)[0]
    silent = node_server(FEDAVG, "north", tmp_path, egress={"kinds": []})
    assert learnable(silent) == []


# -- random histories of a whole node ----------------------------------------------------------------------------
EVENT = st.tuples(
    st.sampled_from(["next", "next", "again", "invented", "restart", "old budget", "other federation"]),
    st.one_of(st.none(), st.none(), st.integers(0, 12)),
)


def _lived(events, asked, folder, releases=3):
    """Let a coordinator ask what it likes while disks fail at any write. Return all different updates that left."""
    here = {name: node_server(FEDAVG, "north", folder / name, **own(folder, releases)) for name in ("one", "two")}
    told, copies, next_one, round = set(), [], dict.fromkeys(here, 1), dict.fromkeys(here, 0)
    for what, crash in events:
        name = "two" if what == "other federation" else "one"
        server = here[name] = node_server(FEDAVG, "north", folder / name, **own(folder, releases))
        server.store.disk = server.budget.disk = Fragile(crash)
        if what == "old budget" and copies:
            server.budget.file.write_bytes(copies[0])
        value = codec.unpack(asked[0])
        value["number"] = next_one[name] - (what == "again" and next_one[name] > 1) + 7 * (what == "invented")
        value["round"] = round[name] + (what == "invented")
        answer = codec.unpack(server.answer(codec.pack(value)))
        if "outcome" in answer:
            next_one[name] = value["number"] + 1
            round[name] = answer["outcome"]["round"]
            for send in answer["outcome"]["sends"]:
                if send[3] is not None:
                    told.add(b"".join(t.numpy().tobytes() for t in send[3]["weights"].values()))
        if server.budget.file.exists():
            copies.append(server.budget.file.read_bytes())
    return told


@pytest.mark.parametrize("examples", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_no_history_of_a_whole_node_releases_more_than_the_budget_pays_for(examples, asked):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.lists(EVENT, min_size=4, max_size=16))
    def check(events):
        with tempfile.TemporaryDirectory() as folder:
            assert len(_lived(events, asked, Path(folder))) <= 3

    check()


def test_a_whole_node_can_spend_its_budget_and_one_that_pays_late_is_caught(asked, tmp_path, monkeypatch):
    events = [("next", None)] * 6
    assert len(_lived(events, asked, tmp_path / "honest")) == 3
    monkeypatch.setattr(Budget, "spend", lambda self, charge: self.affords(charge))  # the charge is never written
    assert len(_lived(events, asked, tmp_path / "late")) > 3


# -- organisation.toml -------------------------------------------------------------------------------------------
BLOCK = (
    "[egress]\nmetrics = []\ndigest = false\n[egress.privacy]\nclip = 1.0\nnoise = 8.0\ndelta = 1e-5\nbudget = 4.0\n"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('budget = "here"\n' + BLOCK, "budget: here is in the folder of one federation: keep it outside"),
        ('budget = "../b"\nwitness = "../w"\n' + BLOCK, "witness: it is beside the budget"),
        (BLOCK.replace("8.0", "-8.0"), "noise is a multiple of the clip > 0, got -8"),
        (BLOCK.replace("clip = 1.0\n", ""), "clip is missing"),
        (BLOCK.replace("metrics = []\n", ""), "privacy covers messages alone: set metrics"),
        (BLOCK + "epsilon = 3\n", "epsilon"),
    ],
)
def test_a_block_that_makes_no_sense_is_one_line(tmp_path, text, why):
    place = tmp_path / "folder"
    place.mkdir()
    (place / FILE).write_text('name = "north"\nfederation = "f"\n' + text)
    with pytest.raises(DeployError, match=why) as found:
        Organisation.load(place / FILE)
    assert "\n" not in str(found.value)


def test_a_block_without_a_budget_file_is_refused(tmp_path):
    with pytest.raises(DeployError, match=r"egress\.privacy: set budget"):
        node_server(FEDAVG, "north", tmp_path, egress=policy())


def test_private_training_at_home_is_charged_to_the_same_budget(asked, tmp_path):
    plan = FEDAVG.plan(options={"local": {"batch": 16, "private": {"clip": 1.0, "noise": 2.0}}})
    made = FEDAVG.organisation(
        "north",
        budget=str(tmp_path / "b" / "rows"),
        egress={"metrics": [], "digest": False, "privacy": {"kinds": [], "delta": DELTA, "budget": 5.0}},
    )
    assert made.build(plan, "north").trainings["local"].private.noise == 2.0


def test_an_answer_from_before_the_block_does_not_leave_again_without_noise(asked, tmp_path):
    """A coordinator that asks once more, after the owner has asked for noise, gets nothing of the raw answer."""
    open_door = node_server(FEDAVG, "north", tmp_path)
    assert sends(open_door.answer(asked[0]))[0][3] is not None
    here = node_server(FEDAVG, "north", tmp_path, **own(tmp_path))
    assert sends(here.answer(asked[0]))[0][3] is None
    assert here.budget.look().charges == ()


def test_a_budget_that_does_not_pay_for_one_step_of_training_is_refused_when_built(tmp_path):
    plan = FEDAVG.plan(options={"local": {"batch": 16, "private": {"clip": 1.0, "noise": 2.0}}})
    policy = {"metrics": [], "digest": False, "privacy": {"kinds": [], "delta": DELTA, "budget": 0.9}}
    made = FEDAVG.organisation("north", budget=str(tmp_path / "b" / "rows"), egress=policy)
    federation, budget = made.build(plan, "north"), made.account("north")
    _check_budget(federation, "north", budget)
    (step,) = federation.step_charges("north")
    assert (step.multiplier, step.times) == (2.0, 1)
    while budget.spend(step._replace(times=8)) or budget.spend(step):
        pass
    with pytest.raises(DeployError, match="the privacy budget is spent: north could not train a step"):
        _check_budget(federation, "north", budget)
    with pytest.raises(ValueError, match=r"one step of training costs epsilon .*, and the budget is 0\.01"):
        FEDAVG.organisation(
            "north", budget=str(tmp_path / "c"), egress={**policy, "privacy": {**policy["privacy"], "budget": 0.01}}
        ).build(plan, "north")
    with pytest.raises(ValueError, match=r"no kind is protected .* and no training is private"):
        made.build(FEDAVG.plan(), "north")
