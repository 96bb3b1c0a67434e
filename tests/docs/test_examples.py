"""The examples in examples/ run as they stand."""

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heterophony.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def sensors(tmp_path, monkeypatch):
    """A folder with the example of sensors and its data."""
    if not EXAMPLES.exists():
        pytest.skip("not in a checkout")
    shutil.copytree(EXAMPLES / "sensors", tmp_path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("make_sensors.py", run_name="__main__")
    return tmp_path


def ran(*words):
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.stderr
    return answer


def test_sensors_of_thirty_users_are_a_federation(sensors):
    users, rows = np.unique(np.load("sensors.npz")["user"], return_counts=True)
    assert len(users) == 30
    found = json.loads(ran("run", "ditto", "--on", "sensors.toml", "--rounds", "4", "--json", "--out", "run").stdout)
    participants = found["metrics"]["participants"]
    assert 20 < len(participants) <= 30
    assert max(rows) > 3 * min(rows)
    assert found["metrics"]["private"] > 0.6  # four activities: chance is 0.25
    ran("resume", "run", "--rounds", "5")
    ran("export", "run", "--node", "c3", "--to", "model.safetensors")
    stored = np.load("sensors.npz")
    given = json.loads(ran("predict", "model.safetensors", "sensors.npz", "--json").stdout)["names"]
    own = stored["user"] == 4  # as no user before was joined with another
    assert np.mean(np.array(given)[own] == stored["activity"][own]) > 0.6
    np.savez("short.npz", windows=stored["windows"][..., :9], scale=stored["scale"], offset=stored["offset"])
    answer = CliRunner().invoke(app, ["predict", "model.safetensors", "short.npz"])
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert "rows have the shape (6, 9), the network reads (6, 64)" in answer.stderr


def test_a_network_of_ones_own_is_told_the_shape_of_the_windows(sensors):
    words = ("run", "fedavg", "--on", "sensors.toml", "--rounds", "1", "--set", "models.participants=sensor_nets:conv")
    assert json.loads(ran(*words, "--json").stdout)["metrics"]["participants"]
