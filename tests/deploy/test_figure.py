"""Figure 1 of B-HFL between organisations: edge servers elsewhere, proxy data, residual links, one that does not wait.

Without a network first; the slow tests do the same over TLS, and kill."""

import json
import time
from dataclasses import replace

import pytest

from deploy.direct import Direct, at_coordinator, engine, node_server, node_servers
from deploy.loopback import Loopback
from deploy.test_folder import deploy
from deploy.test_node_server import changed
from deploy.test_remote import Clock, Stubborn
from heterophony.base import codec
from heterophony.base.toml import written
from heterophony.deploy import coordinator, status
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.node_server import Household
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.plan import Plan
from heterophony.deploy.rehearsal import Rehearsal as flower
from heterophony.engines import local
from heterophony.engines.question import Question
from heterophony.kernel.fields import Refused
from heterophony.runs.run import Run
from heterophony.settings import assemble
from toys.deployed import CASES, FIGURE, RESIDUALS, data_call, proxy

INNER = ("region", "coast", "inland")


TRAINS = {"train": proxy("root")}
LONGER = replace(FIGURE, rounds=3)


def here(case=FIGURE):
    return local(case.federation()).run(case.rounds)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The courier of an undisturbed run, with all questions that there were."""
    courier = Direct(node_servers(FIGURE, tmp_path_factory.mktemp("calm")))
    engine(FIGURE, courier).run(FIGURE.rounds)
    return courier


def questions(calm, node):
    return [data for to, data in calm.questions if to == node]


# -- who holds what ----------------------------------------------------------------------------------------------
def test_each_inner_node_is_at_the_organisation_that_the_plan_says():
    plan = FIGURE.plan()
    assert plan.everyone == ("north", "south", "east", "authority", "harbour")
    assert {name: plan.held_by(name) for name in plan.everyone} == {
        "north": ("north",), "south": ("south",), "east": ("east", "inland"),
        "authority": ("region",), "harbour": ("coast",),
    }  # fmt: skip
    assert set(plan.remote) == FIGURE.federation().topology.roles.keys() - {"root"}
    assert set(plan.organisation("coast", None, TRAINS).homes) == {"north", "south", "east"}


def test_the_coordinator_has_neither_model_nor_data_nor_state_of_an_edge_server(tmp_path):
    federation = at_coordinator(FIGURE)
    assert federation.models.keys() == federation.data.keys() == {"root"}
    with Run.create(tmp_path / "run", federation.identity(), FIGURE.rounds) as record:
        ran = engine(FIGURE, Direct(node_servers(FIGURE, tmp_path)), record=record)
        ran.run(FIGURE.rounds)
    for node in INNER:
        assert codec.unpack(ran.encode_node(node))["node"] == {}
    assert codec.unpack(ran.encode_node("root"))["node"]["models"]


def test_an_edge_servers_model_and_the_states_of_its_optimisers_are_on_its_own_disk(calm):
    nodes = calm.node_servers
    whole = local(FIGURE.federation())
    whole.run(FIGURE.rounds)
    for node in INNER:
        kept, wanted = nodes[node].store.load().state, whole.host.state(node)
        assert codec.pack(kept["models"]) == codec.pack(wanted["models"])
        assert codec.pack(kept["vars"]) == codec.pack(wanted["vars"])
        assert kept["vars"]["states"].keys() >= {"up", "down"}
    assert nodes["coast"].store.load().state["epochs"] == {"train": FIGURE.rounds}  # it has trained on data of its own
    assert "train" not in nodes["region"].store.load().state["epochs"]


def test_all_die_in_the_middle_and_go_on(tmp_path):
    """The coordinator from its snapshot, the organisations each from its own disk."""

    class Dead(BaseException):
        pass

    class Doomed(Direct):
        def collect(self, tickets):
            if len(self.questions) > 8:
                raise Dead
            return super().collect(tickets)

    federation = at_coordinator(FIGURE)
    with pytest.raises(Dead), Run.create(tmp_path / "run", federation.identity(), FIGURE.rounds) as record:
        engine(FIGURE, Doomed(node_servers(FIGURE, tmp_path)), record=record).run(FIGURE.rounds)
    nodes = node_servers(FIGURE, tmp_path)
    with Run.open(tmp_path / "run", federation.identity()) as record:
        result = engine(FIGURE, Direct(nodes), record=record).run(FIGURE.rounds)
    assert result.digest == here().digest
    sent = [len([row for row in result.ledger.messages if row["from"] == node]) for node in nodes]
    assert [len(node.store.rows("ledger")) for node in nodes.values()] == sent


def test_residual_links_are_checked_at_an_edge_servers_door(calm, tmp_path):
    question = questions(calm, "coast")[0]
    value = codec.unpack(question)
    (far,) = value["mail"]["also"]
    assert (far["kind"], far["sender"]) == ("far-down", "root")
    coast = node_server(FIGURE, "coast", tmp_path / "coast")
    far["sender"] = "region"  # its parent, to which it has no residual link
    said = codec.unpack(coast.answer(codec.pack(value)))["refused"]
    assert said == "'far-down' from 'region' to 'coast' is on no link here"
    assert "outcome" in codec.unpack(coast.answer(question))


def test_what_an_edge_server_withholds_does_not_leave_and_the_rest_goes_on(tmp_path):
    nodes = node_servers(FIGURE, tmp_path)
    quiet = {"nodes": {"coast": {"data": data_call("proxy", "coast"), "egress": {"kinds": ["down", "up", "far-down"]}}}}
    nodes["coast"] = node_server(FIGURE, "coast", tmp_path, **quiet)
    result = engine(FIGURE, Direct(nodes)).run(FIGURE.rounds)
    status = {(row["from"], row["kind"]): row["status"] for row in result.ledger.messages}
    assert status["coast", "far-up"] == "withheld"
    assert status["inland", "far-up"] == status["coast", "up"] == "sent"


def test_a_policy_of_an_inner_node_is_its_own_or_that_of_its_organisation():
    own = FIGURE.organisation("harbour", egress={"metrics": []})
    assert own.policy("coast").metrics == ()
    own = FIGURE.organisation("harbour", egress={"metrics": []}, nodes={"coast": {"egress": {"reactions": 3}}})
    assert own.policy("coast").reactions == 3
    assert own.policy("coast").metrics == ("test",)


def test_one_organisation_answers_for_all_its_nodes_and_for_no_other(calm, tmp_path):
    nodes = {name: node_server(FIGURE, name, tmp_path / "east") for name in FIGURE.plan().held_by("east")}
    both = Household(nodes)
    for to, question in calm.questions:
        if to in nodes:
            assert "outcome" in codec.unpack(both.answer(question)) or "digest" in codec.unpack(both.answer(question))
    assert {name: node.store.peek().applied for name, node in nodes.items()} == {"east": 2, "inland": 4}
    strange = questions(calm, "north")[0]
    assert codec.unpack(both.answer(strange))["refused"].startswith("a question to north")
    assert "malformed" in codec.unpack(both.answer(b"nonsense"))["refused"]
    assert "malformed" in codec.unpack(both.answer(changed(strange, node=3)))["refused"]
    assert len(nodes["east"].store.rows("incidents")) == 3


def test_an_edge_server_that_only_refuses_is_absent_with_its_subtree(tmp_path):
    """After the federation's patience; nobody stands in for it, and its clients are not asked."""
    time = Clock()
    courier = Stubborn(node_servers(FIGURE, tmp_path), "coast", codec.pack({"refused": "no"}))
    plan = FIGURE.plan(pace={"poll": 0.5, "patience": 60.0})
    result = engine(FIGURE, courier, plan, clock=time, sleep=time.sleep).run(FIGURE.rounds)
    assert result.rounds == FIGURE.rounds
    absent = [row for row in result.ledger.incidents if row["incident"] == "absent"]
    assert {row["node"] for row in absent} == {"region"}
    assert all("from coast: it has only refused and failed" in row["detail"] for row in absent)
    assert not [row for row in result.ledger.messages if row["from"] in ("coast", "north", "south")]


@pytest.mark.parametrize("buffer", [{"coast": 1, "*": 0}, {"root": 1, "*": 1}], ids=["an-edge-server", "everyone"])
def test_inner_nodes_that_do_not_wait_come_to_the_end(buffer, tmp_path):
    """What they merge with what depends on real time; how often, and what is sent, does not."""
    case = replace(FIGURE, options={**FIGURE.options, "buffer": buffer})
    result = engine(case, Direct(node_servers(case, tmp_path))).run(case.rounds)
    assert result.rounds == case.rounds
    assert not result.ledger.incidents
    pushed = {row["from"] for row in result.ledger.messages if row["kind"] == "push"}
    assert pushed >= {"north", "south"}


def test_an_edge_server_that_sends_past_its_links_is_refused(calm, tmp_path):
    made, asked = engine(FIGURE, calm), questions(calm, "coast")[0]
    answer = codec.unpack(node_server(FIGURE, "coast", tmp_path / "again").answer(asked))
    question = Question.of({**codec.unpack(asked), "outside": [], "wave": 0})
    assert made.host._answer(question, codec.pack(answer))[0].sends[0].to == ("north", "south")
    ((kind, _, round, body),) = answer["outcome"]["sends"]
    answer["outcome"]["sends"] = [(kind, ("north", "east"), round, body)]
    with pytest.raises(Refused, match="'down' goes to the node's children; 'east' is none of them"):
        made.host._answer(question, codec.pack(answer))


# -- what is wrong is said in one line ---------------------------------------------------------------------------
def plan_with(organisations=None, **links):
    held = dict(FIGURE.held) if organisations is None else organisations
    return FIGURE.plan(organisations=held, links={**FIGURE.links, **links})


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (
            {"authority": ["region"], "harbour": ["coast"]},
            "nobody holds inland: give it to one, or write coordinator =",
        ),
        (
            {**FIGURE.held, "harbour": ["quay"]},
            "harbour lists 'quay', which is no inner node of the tree; those are reg",
        ),
        ({**FIGURE.held, "harbour": ["coast", "north"]}, "harbour lists 'north', which is no inner node"),
        ({**FIGURE.held, "harbour": ["coast", "root"]}, "harbour lists 'root', which is no inner node"),
        ({**FIGURE.held, "fort": ["coast"]}, "harbour and fort both claim coast; a node is held by one"),
        ({**FIGURE.held, "harbour": ["coast", "coast"]}, "harbour lists a node twice"),
        ({**FIGURE.held, "a b": ["coast"]}, "node id 'a b'"),
    ],
)
def test_who_holds_an_inner_node_is_said_once_or_refused(held, text):
    with pytest.raises(ValueError, match=text):
        plan_with(held).coordinator({"root": TRAINS})


def test_inner_nodes_are_the_coordinators_where_the_plan_gives_them_to_nobody_or_to_it():
    assert plan_with({}).remote == ("north", "south", "east")
    held = {"authority": ["region"], "coordinator": ["coast", "inland"]}
    plan = plan_with(held)
    assert plan.everyone == ("north", "south", "east", "authority")
    rows = dict.fromkeys(("root", "coast"), TRAINS)
    assert plan.coordinator(rows).models.keys() == {"root", "coast", "inland"}


def test_an_inner_node_is_no_participant_and_other_methods_have_none():
    with pytest.raises(DeployError, match="coast has nodes below it; say under organisations who holds it"):
        FIGURE.plan(participants=("north", "coast"), homes={}).coordinator()
    with pytest.raises(
        DeployError, match=r"harbour lists 'coast', which is no inner node .*; this federation has none"
    ):
        CASES["fedavg"].plan(organisations={"harbour": ["coast"]}).coordinator()
    with pytest.raises(DeployError, match="a participant is called 'coordinator', which here is the coordinator"):
        CASES["fedavg"].plan(participants=("coordinator",), organisations={"coordinator": []}, homes={}).coordinator()


@pytest.mark.parametrize(
    ("named", "text"),
    [
        (["roof"], "links.proxy: no internal node or role is called 'roof'"),
        (["north"], "links.proxy: no internal node or role is called 'north'"),
        (["leaf"], "links.proxy: no internal node or role is called 'leaf'"),
        (["coast"], "coordinator.toml: root has data to train on, but links.proxy in federation.toml does not name it"),
    ],
)
def test_who_trains_on_proxy_data_is_agreed(named, text):
    with pytest.raises(DeployError, match=text):
        plan_with(proxy=named).coordinator({"root": TRAINS})


def test_proxy_data_that_are_missing_or_of_no_use_are_said():
    plan = FIGURE.plan()
    with pytest.raises(DeployError, match=r"root trains, as links.proxy .* under \[nodes.root\] in coordinator.toml"):
        plan.coordinator()
    with pytest.raises(DeployError, match=r"coordinator.toml: nodes.coast: the coordinator holds no such node"):
        plan.coordinator({"root": TRAINS, "coast": TRAINS})
    own = FIGURE.organisation("harbour", nodes={})
    with pytest.raises(
        DeployError, match=r"coast trains, as links.proxy .* under \[nodes.coast\] in organisation.toml"
    ):
        own.build(plan, "coast")
    own = FIGURE.organisation("authority", nodes={"region": {"data": data_call("proxy", "region")}})
    with pytest.raises(DeployError, match=r"region has data to train on, but links\.proxy in federation.toml does not"):
        own.build(plan, "region")
    only_means = FIGURE.plan(method="hierfavg", options={}, links={**FIGURE.links, "proxy": ["root"]})
    with pytest.raises(DeployError, match=r"the method lets root train for no epochs \(proxy.epochs\)"):
        only_means.coordinator({"root": TRAINS})
    with_public = FIGURE.plan(options={**FIGURE.options, "proxy": {"data": "own"}})
    with pytest.raises(DeployError, match=r"proxy\.data = 'own' takes public data too: set public, or say 'train'"):
        with_public.coordinator({"root": TRAINS})


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("harbour", {"nodes": {"inland": {}}}, "harbour: nodes.inland: it is no inner node that federation.toml gives"),
        ("east", {"nodes": {"east": {}}}, "east: nodes.east: it is no inner node that federation.toml gives to east"),
        ("fort", {}, "fort holds no node in federation.toml; there are north, south, east, authority, harbour"),
        ("harbour", {"data": data_call("proxy", "coast")}, r"participant's own; put them under \[nodes.coast\]"),
    ],
)
def test_an_organisation_that_is_not_as_the_plan_says_is_told(name, changes, text):
    with pytest.raises(DeployError, match=text):
        FIGURE.organisation(name, **changes).check(FIGURE.plan())


# -- folders and commands ----------------------------------------------------------------------------------------
MORE = {"links": FIGURE.links, "organisations": FIGURE.held, "tests": "toys.deployed:tests", "options": FIGURE.options}
WORDS = ["--method", "bhfl", "--participants", "north,south,east", "--common", "toys.deployed:network"]


@pytest.fixture
def ward(tmp_path):
    (tmp_path / "more.toml").write_text(written(MORE))
    done = deploy("init", tmp_path / "ward", *WORDS, "--plan", tmp_path / "more.toml")
    assert done.exit_code == 0, done.output
    return tmp_path / "ward"


def test_init_writes_a_folder_and_a_key_for_each_organisation_of_a_tree(ward):
    plan = Plan.load(ward / "coordinator" / "federation.toml")
    assert plan.links.residuals == (("root", "coast"), ("root", "inland"))
    assert plan.organisations == FIGURE.held
    names = {"north", "south", "east", "authority", "harbour"}
    assert {path.name for path in (ward / "participants").iterdir()} == names
    assert {path.stem for path in (ward / "coordinator" / "keys").iterdir()} == names
    assert "[nodes.root]" in (ward / "coordinator" / "coordinator.toml").read_text()
    found = {name: Organisation.load(ward / "participants" / name / "organisation.toml") for name in names}
    assert {name: set(own.nodes) for name, own in found.items() if own.nodes} == {"harbour": {"coast"}}
    assert found["harbour"].data is None
    assert found["east"].data is not None
    for own in found.values():
        own.check(plan)


def filled(ward):
    """The folders with the toys' functions in them."""
    plan = Plan.load(ward / "coordinator" / "federation.toml")
    for name in plan.everyone:
        own = FIGURE.organisation(name, federation=plan.id).model_dump(mode="json")
        (ward / "participants" / name / "organisation.toml").write_text(written(own))
    return plan


def test_check_names_inner_nodes_and_what_they_hold(ward):
    filled(ward)
    done = deploy("check", ward / "participants" / "harbour")
    assert done.exit_code == 0, done.output
    assert "inner node 'coast': below region, above north, south; residual links with root\n" in done.output
    assert "data 'train': 32 rows" in done.output
    assert "message 'far-up' (weights) to ancestors: may leave" in done.output
    done = deploy("check", ward / "participants" / "east")
    before, _, after = done.output.partition(
        "inner node 'inland': below region, above east; residual links with root\n"
    )
    assert "data 'train': 56 rows" in before
    assert "data" not in after
    done = deploy("check", ward / "participants" / "authority")
    assert "inner node 'region': below root, above coast, inland\nit only merges: links.proxy" in done.output


def test_check_at_the_coordinator_says_who_holds_what_and_loads_its_own_data(ward):
    filled(ward)
    place = ward / "coordinator"
    done = deploy("check", place)
    assert done.exit_code == 2
    assert (
        done.output.strip().splitlines()[-1].endswith("my_data:proxy: ModuleNotFoundError: No module named 'my_data'")
    )
    (place / "coordinator.toml").write_text(written({**FIGURE.own, "device": "cuda"}))
    assert coordinator.loaded(place).compute.device == "cuda"
    (place / "coordinator.toml").write_text(written(FIGURE.own))
    done = deploy("check", place)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[2:] == [
        "north holds north",
        "south holds south",
        "east holds east, inland",
        "authority holds region",
        "harbour holds coast",
        "root node 'root': above region; residual links with coast, inland",
        "model 'model': 160 parameters; its weights are 640 bytes of a message that has them",
        "data 'train': 32 rows",
    ]


def test_status_names_inner_nodes(ward):
    plan = filled(ward)
    done = deploy("status", ward / "participants" / "east")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[1:] == ["0 reactions done", "inner node inland: 0 reactions done"]
    found = json.loads(deploy("status", ward / "participants" / "harbour", "--json").output)
    assert found["nodes"] == {"coast": {"inner": True, "reactions": 0, "left": {}, "incidents": []}}
    found = json.loads(deploy("status", ward / "coordinator", "--json").output)
    assert found["holders"] == {"region": "authority", "coast": "harbour", "inland": "east"}
    assert set(plan.remote) > set(found["holders"])
    there = {**found, "nodes": {"east": "online", "inland": "online", "coast": "offline"}}
    assert status.lines(there)[1:] == ["east: online", "inland at east: online", "coast at harbour: offline"]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({**MORE, "organisations": {"harbour": ["coast"]}}, "organisations: nobody holds region"),
        ({**MORE, "rounds": 3}, "more.toml: rounds: the command says that; leave it out of one of the two"),
        ({**MORE, "roots": 3}, "more.toml: roots"),
        ({**MORE, "links": {"tree": {"root": 3}}}, "links.tree"),
    ],
)
def test_what_a_file_of_more_says_wrongly_is_one_line_and_writes_nothing(more, text, tmp_path):
    (tmp_path / "more.toml").write_text(written(more))
    done = deploy("init", tmp_path / "ward", *WORDS, "--plan", tmp_path / "more.toml")
    assert done.exit_code == 2
    (line,) = done.output.strip().splitlines()
    assert text in line
    assert not (tmp_path / "ward").exists()


# -- over TLS, with kills ----------------------------------------------------------------------------------------
def settled(ring, result):
    """What a calm run in one process ends with; every message left its node once."""
    alone = here(ring.case)
    assert result["digest"] == alone.digest
    assert result["rounds"] == ring.case.rounds
    assert json.loads((ring.coordinator / "digests.json").read_text()).keys() == set(alone.nodes)
    for node in ring.plan.remote:
        sent = [(row["kind"], row["round"], row["to"]) for row in alone.ledger.messages if row["from"] == node]
        assert [(row["kind"], row["round"], row["to"]) for row in ring.ledger(node)] == sent
    assert {row["hops"] for row in ring.rows() if row.get("kind") == "far-up"} == {2}
    for node in INNER:  # nobody else has its state
        assert not [path for path in ring.coordinator.rglob("*.hph") if path.parent.name == node]
        assert (ring.state(node) / f"{ring.plan.id}.hph").exists()


@pytest.mark.slow
def test_the_figure_over_tls_ends_with_the_local_digests(tmp_path):
    with Loopback(FIGURE, tmp_path) as ring:
        ring.start("serve", *ring.homes)
        settled(ring, ring.finish(500))


def work_begun(ring, node, round):
    """Wait until a node is in the middle of a reaction."""
    ring.wait_for(lambda: ring.round() >= round and ring.busy(node), 300, f"{node} did not work in round {round}")
    time.sleep(0.3)
    assert ring.busy(node)


@pytest.mark.slow
def test_an_edge_server_and_the_coordinator_are_killed_and_cost_time_and_nothing_else(tmp_path):
    with Loopback(LONGER, tmp_path, pauses={"harbour": 0.7}, pace={"poll": 0.2, "again": 10.0}) as ring:
        ring.start("serve", *ring.homes)
        work_begun(ring, "coast", 0)  # it trains on its proxy data
        ring.kill("harbour")
        ring.start("harbour")
        work_begun(ring, "coast", 1)
        ring.kill("serve")
        ring.start("serve")
        work_begun(ring, "coast", 2)
        ring.kill("harbour")
        ring.kill("serve")
        ring.start("harbour", "serve")
        settled(ring, ring.finish(500))


def rotated():
    """The figure as a setting: three rotations of digits are the clients."""
    below = {"region": {"coast": ["M0", "M20"], "inland": ["M40"]}}
    changes = {"models.same": "mlp", "local.steps": 2, "proxy.steps": 2, "data.rotations": [0, 20, 40]}
    changes |= {"topology.tree": {"root": below}, "topology.residuals": RESIDUALS}
    changes |= {"topology.proxy": ["root", "coast"], "buffer": {"inland": 1, "*": 0}}
    return assemble("bhfl", "rotated-mnist", changes=changes)


def test_a_rehearsal_has_an_organisation_for_each_edge_server():
    plan = flower(rotated()).plan
    assert plan.organisations == {node: (node,) for node in INNER}
    assert plan.everyone == ("M0", "M20", "M40", *INNER)
    assert {node for node in plan.coordinator().topology.roles if node not in plan.remote} == {"root"}


@pytest.mark.slow
def test_a_rehearsal_of_the_figure_ends_with_the_local_digest():
    result, alone = flower(rotated()).run(2), local(rotated()).run(2)
    assert result.digest == alone.digest
    assert result.ledger.bytes() == alone.ledger.bytes()
    assert {row["node"] for row in result.table} == {row["node"] for row in alone.table} >= {"root", *INNER}
