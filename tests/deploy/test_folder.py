"""What `deploy init` writes can be used as it is, and the commands say clearly what is missing."""

import ipaddress
import re
import stat
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("flwr", reason="needs heterophony[flower]")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.folders import deploy, participant
from heterophony.base.toml import written
from heterophony.deploy import keys, status
from heterophony.deploy.coordinator import public_keys
from heterophony.deploy.folder import write
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.named_function import DeployError, NamedFunction, beside
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.participant import household
from heterophony.deploy.plan import Plan, parsed
from toys.deployed import CASES, NAMES


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy") / "ward"
    words = ["--method", "fml", "--participants", "north, south", "--address", "fed.example.org:8443"]
    done = deploy("init", folder, *words, "--common", "toys.deployed:network", "--set", "lr=0.02", "--rounds", 7)
    assert done.exit_code == 0, done.output
    return folder


def test_the_plan_is_what_was_asked_for_and_everyone_has_it(ward):
    plan = Plan.load(ward / "coordinator" / "federation.toml")
    assert (plan.method, plan.rounds, plan.participants) == ("fml", 7, ("north", "south"))
    assert plan.build_method().local.lr == 0.02
    assert plan.networks.common == NamedFunction(call="toys.deployed:network")
    for name in plan.participants:
        assert Plan.load(ward / "participants" / name / "federation.toml") == plan
        own = Organisation.load(ward / "participants" / name / "organisation.toml")
        assert (own.name, own.federation) == (name, plan.id)
        assert own.folder == ward / "participants" / name / "state"
    assert parsed(CoordinatorsOwn, ward / "coordinator" / "coordinator.toml").address == "127.0.0.1:8000"


def test_the_server_certificate_is_for_the_address_and_signed_by_the_authority(ward):
    ca = x509.load_pem_x509_certificate((ward / "coordinator" / "ca.crt").read_bytes())
    server = x509.load_pem_x509_certificate((ward / "coordinator" / "server.pem").read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_are_the_owners_own_and_differ(ward):
    secret = [*ward.rglob("*.key")]
    assert len(secret) == 4  # authority, server, two nodes
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    public = set()
    for name in ("north", "south"):
        key = keys.private(ward / "participants" / name / "node.key")
        assert isinstance(key.curve, ec.SECP384R1)
        assert key.public_key() == keys.public(ward / "coordinator" / "keys" / f"{name}.pub")
        public.add((ward / "coordinator" / "keys" / f"{name}.pub").read_text())
    assert len(public) == 2
    assert not [*(ward / "participants").rglob("ca.key")]
    assert not [*(ward / "coordinator").rglob("node.key")]


def test_nobody_else_can_look_into_a_folder(ward):
    places = [ward / "coordinator", *(ward / "participants").iterdir()]
    assert len(places) == 3
    assert {stat.S_IMODE(place.stat().st_mode) for place in places} == {0o700}


def test_two_participants_with_one_key_are_refused(tmp_path):
    write(tmp_path / "ward", "fml", ["north", "south"], common="toys.deployed:network")
    place = tmp_path / "ward" / "coordinator"
    plan = Plan.load(place / "federation.toml")
    assert public_keys(place, plan).keys() == {"north", "south"}
    (place / "keys" / "south.pub").write_text((place / "keys" / "north.pub").read_text().strip() + " of the south\n")
    with pytest.raises(DeployError, match=r"north\.pub and south\.pub are the same key"):
        public_keys(place, plan)


def test_nothing_of_a_template_is_left_open(ward):
    for path in ward.rglob("*"):
        if path.is_file() and path.suffix in {".sh", ".service", ".toml", ".md", ".py"}:
            assert "$id" not in path.read_text()
            assert "$folder" not in path.read_text()
    text = (ward / "coordinator" / "nginx.conf").read_text()
    assert "listen 8443 ssl;" in text
    assert "proxy_pass https://127.0.0.1:8000;" in text
    assert "proxy_set_header Host $host;" in text
    for script in (ward / "coordinator" / "serve.sh", ward / "participants" / "north" / "start.sh"):
        assert script.stat().st_mode & stat.S_IXUSR


def test_the_proxy_takes_flowers_chunks(ward):
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

    text = (ward / "coordinator" / "nginx.conf").read_text()
    plan = Plan.load(ward / "coordinator" / "federation.toml")
    assert text.count(f"{plan.id}_connections") == 2  # names of its own: a machine may have several federations
    (size,) = re.findall(r"client_max_body_size (\d+)m;", text)
    assert FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE < int(size) * 2**20 < 2 * FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE


def test_units_bound_memory_and_let_nobody_else_read(ward):
    units = [*ward.rglob("*.service")]
    assert len(units) == 3  # the coordinator's and one for each of two participants
    for unit in units:
        assert {"MemoryMax=80%", "UMask=0077"} <= set(unit.read_text().splitlines())


def test_flower_accepts_the_stub_app(ward):
    from flwr.cli.build import build_fab_from_disk

    assert len(build_fab_from_disk(ward / "coordinator" / "app")) < 10_000


def test_an_existing_folder_is_not_overwritten(ward):
    done = deploy("init", ward, "--method", "fml", "--participants", "a,b")
    assert done.exit_code == 2
    assert "is not empty" in done.output


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--method", "fmll", "--participants", "a"], "there is no method 'fmll', perhaps you meant 'fml'"),
        (["--method", "fml", "--participants", "a", "--set", "lrr=1"], "fml has no option 'lrr'"),
        (["--method", "fml", "--participants", "a,a"], "node ids must be different"),
        (["--method", "fml", "--participants", "a b"], "node id 'a b'"),
        (["--method", "hierfavg", "--participants", "../../x,b"], "node id '../../x'"),
        (["--method", "hierfavg", "--participants", ".."], "node id '..'"),
        (["--method", "fml", "--participants", ""], "participants"),
        (["--method", "fml", "--participants", "a", "--address", "here"], "address"),
        (["--method", "fml", "--participants", "a", "--address", "here:99999"], "from 1 to 65535"),
        (["--method", "fml", "--participants", "a", "--address", "fünf.example:8443"], "write it in ASCII"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line_and_writes_nothing(words, text, tmp_path):
    done = deploy("init", tmp_path / "ward", *words)
    assert done.exit_code == 2
    assert text in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "ward").exists()


def test_check_says_what_would_leave(tmp_path):
    here = participant(tmp_path / "ward", CASES["fml"], egress={"kinds": []})
    done = deploy("check", here)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("the plan runs toys.deployed:network here (networks.common), with {'hidden': 12}\n")
    assert "model 'model': 108 parameters; its weights are 432 bytes of a message that has them" in done.output
    assert "data 'train': 40 rows" in done.output
    assert "message 'meme' (weights) to parent: is withheld" in done.output
    assert "figures told: test" in done.output
    assert "reactions: as many as the coordinator asks for" in done.output


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"data": "nowhere:load"}, "nowhere:load: ModuleNotFoundError"),
        ({"data": "toys.deployed:network"}, "must give Data"),
        ({"model": "toys.deployed:public"}, "gave a Data, not a torch.nn.Module"),
        ({"model": None}, "needs a network of one's own: set model"),
        ({"federation": "another"}, "federation = 'another', but federation.toml is 'toy-of-fml'"),
        ({"egress": {"kinds": ["gradient"]}}, "has no kind 'gradient'"),
    ],
)
def test_check_names_what_is_wrong(changes, text, tmp_path):
    done = deploy("check", participant(tmp_path / "ward", CASES["fml"], **changes))
    assert done.exit_code == 2
    *calls, said = done.output.strip().splitlines()
    assert text in said
    assert all(line.startswith("the plan runs toys.deployed:") for line in calls)


def test_functions_may_lie_in_the_participants_own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    here = participant(tmp_path / "ward", CASES["fml"], data="northern_data:load")
    (here / "northern_data.py").write_text(
        "import toys.deployed\n\n\ndef load():\n    return toys.deployed.rows('north')\n"
    )
    done = deploy("check", here)
    assert done.exit_code == 0, done.output
    assert "data 'train': 40 rows" in done.output


def test_a_node_is_tried_on_the_cpu_before_children_use_the_gpu(tmp_path, monkeypatch):
    """A process that has used a GPU cannot fork children that do; and here there may be none at all."""
    here = participant(tmp_path / "ward", CASES["fml"], device="cuda")
    devices = []
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device, **_: (devices.append(device), module)[1])
    made = household(here).nodes["north"]
    assert devices
    assert set(devices) == {"cpu"}
    assert made.federation.compute.device == "cuda"
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(
    ("changes", "module"),
    [
        ({"tests": {"call": "os:remove", "arguments": {"path": "MARK"}}}, "os"),
        ({"tests": {"call": "northern:remove", "arguments": {"path": "MARK"}}}, "posix"),  # found there, but not of it
        ({"tests": {"call": "heterophony.deploy.keys:node", "arguments": {}}}, "heterophony.deploy.keys"),
        (
            {"tests": {"call": "heterophony.models:create", "arguments": {"name": "antigravity:fly"}}},
            "antigravity",
        ),
        (
            {"tests": {"call": "heterophony.models:create", "arguments": {"name": ["antigravity:fly"]}}},
            "antigravity",
        ),
        (
            {"tests": {"call": "heterophony.data.sources.files:late", "arguments": {"module": "antigravity"}}},
            "heterophony.data.sources.files",  # it imports what it is told
        ),
        ({"tests": {"call": "heterophony.data:sources", "arguments": {}}}, "heterophony.data"),
        ({"tests": "toys.deployed:tests", "networks": {"common": "toys.deployed:network"}}, "toys.deployed"),
    ],
)
def test_a_plan_runs_nothing_here_but_what_the_organisation_allows(changes, module, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    here = participant(tmp_path / "ward", CASES["fml"], modules=[])
    (here / "northern.py").write_text("from os import remove\nfrom toys.deployed import network, tests\n")
    mark = tmp_path / "mark"
    mark.write_text("")
    plan = CASES["fml"].plan(**{"networks": {"common": "heterophony.models:create"}, **changes})
    text = written(plan.model_dump(mode="json")).replace("MARK", str(mark))
    (here / "federation.toml").write_text(text)
    done = deploy("check", here)
    assert done.exit_code == 2
    *calls, said = done.output.strip().splitlines()
    assert len(calls) == 2
    assert f"runs {module!r}, which is not in this folder" in said
    assert "name it under modules in organisation.toml" in said
    assert mark.exists()
    assert "antigravity" not in sys.modules


def test_a_recipe_is_for_rehearsals(tmp_path):
    here = participant(tmp_path / "ward", CASES["fml"])
    (here / "federation.toml").write_text(written(CASES["fml"].plan(recipe="{}").model_dump(mode="json")))
    done = deploy("check", here)
    assert done.exit_code == 2
    assert "recipe is for rehearsals" in done.output


def test_a_file_in_the_folder_does_not_stand_in_for_an_installed_module(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    beside(tmp_path)
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_a_new_key_replaces_the_old_one(tmp_path):
    here = participant(tmp_path / "ward", CASES["fml"])
    before = (here / "node.pub").read_text()
    done = deploy("key", here)
    assert done.exit_code == 2
    assert "node.key is there already" in done.output
    assert (here / "node.pub").read_text() == before
    assert deploy("key", here, "--force").exit_code == 0
    assert (here / "node.pub").read_text() != before
    assert keys.private(here / "node.key").public_key() == keys.public(here / "node.pub")
    done = deploy("key", here / "nowhere")
    assert done.exit_code == 2
    assert done.output.strip().endswith("nowhere/node.key: no such file or directory")
    (here / "node.key").unlink()
    assert deploy("key", here).exit_code == 0
    assert stat.S_IMODE((here / "node.key").stat().st_mode) == 0o600


def expired(folder, monkeypatch, days=800):
    """A certificate that was made so many days ago."""
    with monkeypatch.context() as patch:
        then = datetime.now(UTC) - timedelta(days=days)
        patch.setattr(keys, "datetime", SimpleNamespace(now=lambda zone: then))
        keys.server(folder, "localhost")


def test_a_certificate_that_has_expired_is_said_and_renewed(tmp_path, monkeypatch):
    write(tmp_path / "ward", "fml", ["north"], common="toys.deployed:network", address="localhost:8443")
    place = tmp_path / "ward" / "coordinator"
    keys.check_server(place)
    expired(place, monkeypatch)
    done = deploy("serve", place)
    assert done.exit_code == 2
    (line,) = done.output.strip().splitlines()
    assert "server.pem is valid from 2" in line
    assert "`heterophony deploy certificate" in line
    assert deploy("certificate", place).exit_code == 0
    keys.check_server(place)
    (place / "server.key").write_bytes((place / "ca.key").read_bytes())
    with pytest.raises(DeployError, match=r"server\.pem is not of server\.key"):
        keys.check_server(place)
    (place / "ca.key").unlink()
    done = deploy("certificate", place)
    assert done.exit_code == 2
    assert "ca.key is not here" in done.output


@pytest.mark.parametrize(
    ("name", "text"), [("node.key", "node.key is missing: make it with"), ("ca.crt", "ca.crt is missing: it came with")]
)
def test_a_node_without_its_key_or_authority_says_so_and_ends(name, text, tmp_path):
    here = participant(tmp_path / "ward", CASES["fml"])
    (here / name).unlink()
    done = deploy("node", here)
    assert done.exit_code == 2
    assert text in done.output.strip().splitlines()[-1]


def test_status_of_a_node_that_has_done_nothing_and_of_no_folder(tmp_path):
    done = deploy("status", participant(tmp_path / "ward", CASES["fml"]))
    assert done.exit_code == 0
    assert "0 reactions done" in done.output
    done = deploy("status", tmp_path)
    assert done.exit_code == 2
    assert "federation.toml is missing" in done.output


def test_status_of_files_that_were_edited_is_one_line(tmp_path):
    here = participant(tmp_path / "ward", CASES["fml"])
    store = NodeStore(here / "state", "toy-of-fml")
    store.note("refused", "no")
    assert "refused: no" in deploy("status", here).output
    place = tmp_path / "ward" / "coordinator"
    for path, text in [
        (store.table("ledger"), '{"kind": 3}\n'),
        (store.table("incidents"), "[1]\n"),
        (place / "status.json", '{"at": 1'),
        (place / "status.json", "{}"),
        (place / "status.json", '{"at": 1.0}'),
    ]:
        path.write_text(text)
        done = deploy("status", place if path.parent == place else here)
        assert done.exit_code == 2
        (line,) = done.output.strip().splitlines()
        assert path.name in line
        path.unlink()


def test_status_shows_what_others_have_said_in_one_printable_line():
    run = {"round": 0, "rounds": 2, "incidents": 0, "age": 1.0, "waits_for": ["west"]}
    run["trouble"] = {"west": "no\nfinished: 2 rounds\x1b[2J"}
    found = {"who": "coordinator", "federation": "ward", "nodes": {"west": "online"}, "run": run, "result": None}
    assert status.lines(found)[-1] == "west: no finished: 2 rounds [2J"
    found["result"] = {"rounds": 1, "bytes": {"total": 3}, "digest": "0" * 64}  # before it went on
    run["finished"] = False
    assert status.lines(found)[-1].startswith("west:")
    run["finished"] = True
    assert status.lines(found)[-1].startswith("finished: 1 round, sent 3 B")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"method": "feddf", "public": "toys.deployed:public"}, "needs every participant's network at the server"),
        ({"method": "fedavg", "networks": {}}, "set networks.common"),
        ({"method": "fccl", "options": {}}, "needs public data that everyone holds"),
        ({"method": "hierfavg"}, "needs a tree"),
        ({"participants": (*NAMES, "north")}, "must be different"),
    ],
)
def test_a_plan_that_cannot_work_is_said(changes, text):
    with pytest.raises(ValueError, match=text):
        CASES["fml"].plan(**{"options": {}, **changes}).coordinator()


@pytest.mark.parametrize("wrong", ["nonsense", ":8000", "0.0.0.0:", "0.0.0.0:http", "0.0.0.0:99999", "a b:1"])
def test_a_bad_place_to_listen_is_refused_before_anything_is_written(wrong, tmp_path):
    done = deploy("init", tmp_path / "ward", "--method", "fedh2l", "--participants", "a,b", "--listen", wrong)
    assert done.exit_code == 2
    assert f"listen is HOST:PORT, such as 0.0.0.0:8000, with a port from 1 to 65535, got {wrong!r}" in done.output
    assert not (tmp_path / "ward").exists()


def test_a_number_in_a_tree_is_said():
    with pytest.raises(DeployError, match=r"links.tree: below 'root' there is a list of names or a table, got 3"):
        CASES["fml"].plan(method="bhfl", options={}, links={"tree": {"root": 3}}).coordinator()


def test_a_clock_of_virtual_time_is_refused():
    links = {"tree": {"root": list(NAMES)}}
    with pytest.raises(DeployError, match="bhfl: a node's own clock is one of virtual time"):
        CASES["fml"].plan(method="bhfl", options={"live": 1.0}, links=links).coordinator()


def test_a_plan_that_is_no_text_or_has_a_strange_field_is_said(tmp_path):
    path = tmp_path / "federation.toml"
    path.write_bytes(b"id = '\xff'")
    with pytest.raises(DeployError, match=r"federation.toml: not a text file in UTF-8"):
        Plan.load(path)
    path.write_text(written({**CASES["fml"].plan().model_dump(mode="json"), "roundz": 3}))
    with pytest.raises(DeployError, match=r"roundz: there is no such field, perhaps you meant 'rounds'; a file has"):
        Plan.load(path)


def test_toml_is_read_back_as_it_was():
    value = {"a": 1, "b": [1.5, 'x"y\\'], "c": {"d": True, "e f": {"g": ["h"]}}, "t": (("a", "b"),)}
    assert tomllib.loads(written(value)) == {**value, "t": [["a", "b"]]}
    for case in CASES.values():
        plan = case.plan()
        assert Plan.model_validate(tomllib.loads(written(plan.model_dump(mode="json")))) == plan


def test_without_flower_one_line_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("heterophony.deploy.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ValueError, match=r"pip install 'heterophony\[flower\]'") as caught:
        __import__("heterophony.deploy.keys")
    assert type(caught.value).__name__ == DeployError.__name__
