"""Operating a deployment: figures for a monitoring system, log lines for machines, a status that is watched."""

import json
import logging
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from deploy.folders import deploy, participant
from heterophony.base.toml import written
from heterophony.cli.deploying import LogFormat, _speak
from heterophony.deploy import openmetrics
from heterophony.deploy.budget import Budget
from heterophony.deploy.node_store import NodeStore
from heterophony.kernel.privacy import Charge
from toys.deployed import CASES

RUN = {
    "round": 3, "rounds": 9, "finished": False, "incidents": 2, "age": 1.5, "sent": {"global": 30, "update": 20},
    "waits_for": ["west"], "trouble": {"east": "refused"},
}  # fmt: skip
COORDINATOR = {"who": "coordinator", "nodes": {"west": "online", "east": "offline"}, "run": RUN, "result": None}


def test_what_a_coordinator_knows_has_a_figure_each():
    found = {(name, *labels.values()): value for name, labels, value in openmetrics.samples(COORDINATOR)}
    assert found == {
        ("round",): 3, ("rounds",): 9, ("finished",): 0, ("incidents",): 2, ("age_seconds",): 1.5,
        ("sent_bytes", "global"): 30, ("sent_bytes", "update"): 20,
        ("online", "west"): 1, ("awaited", "west"): 1, ("troubled", "west"): 0,
        ("online", "east"): 0, ("awaited", "east"): 0, ("troubled", "east"): 1,
    }  # fmt: skip
    assert {name for name, *_ in found} <= openmetrics.ABOUT.keys()


def test_before_a_run_has_begun_only_nodes_have_figures():
    found = [name for name, _, _ in openmetrics.samples({**COORDINATOR, "run": {}})]
    assert set(found) == {"online", "awaited", "troubled"}


@pytest.fixture
def here(tmp_path):
    """A participant's folder with a budget of which something is spent."""
    privacy = {"clip": 1.0, "noise": 8.0, "delta": 1e-3, "budget": 2.0}
    place = participant(tmp_path / "ward", CASES["fedavg"])
    told = {
        **CASES["fedavg"].organisation("north").model_dump(mode="json"),
        "egress": {"metrics": [], "digest": False, "privacy": privacy},
    }
    file, witness = tmp_path / "budgets" / "rows", tmp_path / "witness" / "rows"
    (place / "organisation.toml").write_text(written({**told, "budget": str(file), "witness": str(witness)}))
    Budget(file, witness, 2.0, 1e-3).spend(Charge("update", 4.0))
    NodeStore(place / "state", "toy-of-fedavg").note("refused", "no")
    return place


def test_status_and_figures_tell_what_is_spent_of_a_budget(here):
    lines = deploy("status", here).output.splitlines()
    assert any("privacy budget" in line and "of 2 spent" in line for line in lines), lines
    found = json.loads(deploy("status", here, "--json").output)
    (budget,) = found["budgets"].values()
    assert 0 < budget["spent"] < budget["epsilon"] == 2.0
    figures = {name: value for name, _, value in openmetrics.samples(found)}
    assert figures["epsilon_spent"] == budget["spent"]
    assert figures["reactions"] == 0


def test_figures_are_served_anew_each_time_and_a_folder_that_breaks_does_not_end_it(here):
    pytest.importorskip("prometheus_client")
    server, thread = openmetrics.serve(here, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.server_port}/metrics"
    try:
        first = urllib.request.urlopen(address).read().decode()
        assert "heterophony_up 1.0" in first
        assert 'heterophony_reactions{node="north"} 0.0' in first
        plan = here / "federation.toml"
        text = plan.read_text()
        plan.write_text("no TOML")
        assert "heterophony_up 0.0" in urllib.request.urlopen(address).read().decode()
        plan.write_text(text)
        assert "heterophony_up 1.0" in urllib.request.urlopen(address).read().decode()
        with pytest.raises(openmetrics.DeployError, match=f"127.0.0.1:{server.server_port}: address already in use"):
            openmetrics.serve(here, "127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_folder_that_is_none_is_said_before_anything_is_served(tmp_path):
    done = deploy("metrics", tmp_path)
    assert done.exit_code == 2
    assert "federation.toml is missing" in done.output


def test_a_watched_status_says_it_again_until_it_is_stopped(here):
    words = [sys.executable, "-m", "heterophony", "deploy", "status", str(here), "--watch", "--every", "0.1", "--json"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        first, again = (json.loads(child.stdout.readline()) for _ in range(2))
        assert first == again
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_log_lines_for_machines_are_one_object_a_line(capsys):
    root, ours = logging.getLogger(), logging.getLogger("heterophony")
    before, level, own = root.handlers[:], ours.level, ours.handlers[:]
    root.handlers.clear()
    try:
        _speak(LogFormat.json)
        logging.getLogger("heterophony.coordinator").info("round %d\nis done", 3)
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("heterophony.node").exception("failed")
        first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    finally:
        root.handlers[:], ours.handlers[:] = before, own
        ours.setLevel(level)
    assert (first["level"], first["logger"], first["message"]) == (
        "info",
        "heterophony.coordinator",
        "round 3\nis done",
    )
    assert first["at"].endswith("Z")
    assert "ValueError: no" in second["error"]
