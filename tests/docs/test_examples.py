"""The examples in examples/ run as they stand."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heterophony import Federation
from heterophony.cli import app
from heterophony.data import known

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Goes to a copy of an example's folder, and makes its data where a program does so."""

    def go(name, program=None):
        if not EXAMPLES.exists():
            pytest.skip("not in a checkout")
        shutil.copytree(EXAMPLES / name, tmp_path, dirs_exist_ok=True)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)
        if program:
            runpy.run_path(program, run_name="__main__")
        return tmp_path

    return go


@pytest.fixture
def sensors(example):
    """A folder with the example of sensors and its data."""
    return example("sensors", "make_sensors.py")


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
    ran("export", "run", "--node", "user-4", "--to", "model.safetensors")
    stored = np.load("sensors.npz")
    given = json.loads(ran("predict", "model.safetensors", "sensors.npz", "--json").stdout)["names"]
    own = stored["user"] == 4
    assert np.mean(np.array(given)[own] == stored["activity"][own]) > 0.6
    np.savez("short.npz", windows=stored["windows"][..., :9], scale=stored["scale"], offset=stored["offset"])
    answer = CliRunner().invoke(app, ["predict", "model.safetensors", "short.npz"])
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert "rows have the shape (6, 9), the network reads (6, 64)" in answer.stderr


def test_a_network_of_ones_own_is_told_the_shape_of_the_windows(sensors):
    words = ("run", "fedavg", "--on", "sensors.toml", "--rounds", "1", "--set", "models.participants=sensor_nets:conv")
    assert json.loads(ran(*words, "--json").stdout)["metrics"]["participants"]


def predicted(run, node, file, *words):
    ran("export", run, "--node", node, "--to", f"{run}.safetensors")
    return json.loads(ran("predict", f"{run}.safetensors", file, "--json", *words).stdout)


def metrics(*words):
    return json.loads(ran("run", *words, "--json").stdout)["metrics"]


def test_four_hospitals_learn_who_is_ill_and_how_fast_hearts_beat(example):
    example("heart")
    with open("heart.csv") as file:
        hospitals = [line.split(",")[0] for line in file][1:]
    assert [hospitals.count(name) for name in dict.fromkeys(hospitals)] == [303, 261, 46, 130]
    found = metrics("fedadam", "--on", "heart.toml", "--out", "ill")
    assert found["acc"] > 0.65  # of all patients, 55 % are ill
    assert found["auroc"] > 0.7
    assert all(own["private"] is not None for own in found["participants"].values())
    rates = [metrics("fedavg", "--on", "rate.toml", "--rounds", rounds, "--out", f"rate-{rounds}") for rounds in "16"]
    assert rates[1]["acc"] < rates[0]["acc"]  # beats a minute: less is better
    refused = CliRunner().invoke(app, ["export", "ill", "--node", "server", "--to", "no.safetensors"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "standardised by its own, and server has none: export the model of one of cleveland" in refused.stderr
    ill, rate = predicted("ill", "cleveland", "heart.csv"), predicted("rate-6", "cleveland", "heart.csv")
    with open("heart.csv") as file:
        table = [line.strip().split(",") for line in file]
    right = [int(row[-1]) == (yes > 0.5) for row, (yes,) in zip(table[1:], ill["values"], strict=True)]
    assert np.mean(right[:303]) > 0.65  # its own patients
    ran("report", "rate-6")
    page = Path("rate-6/report.html").read_text()
    assert "MAE on all domains" in page
    assert "colours are classes" not in page  # numbers are no classes
    assert 100 < np.mean(rate["values"][:303]) < 180


def test_the_patients_are_those_of_the_known_set(example):
    if not any(each.found for each in known() if each.entry.name == "heart"):
        pytest.skip("heart is not under the data folder")
    shipped = (example("heart") / "heart.csv").read_bytes()
    folder = next(each.where for each in known() if each.entry.name == "heart").parent
    runpy.run_path("make_heart.py")["main"](folder)
    assert Path("heart.csv").read_bytes() == shipped


def test_twelve_sites_forecast_six_hours(example):
    example("forecast", "make_sites.py")
    first, later = (metrics("fedavg", "--on", "forecast.toml", "--rounds", n, "--out", f"run-{n}") for n in "13")
    assert later["acc"] < first["acc"]
    assert len(later["participants"]) == 12
    assert np.shape(predicted("run-3", "site-00", "sites.npz")["values"]) == (144, 6)


def test_five_cameras_find_discs_and_squares(example):
    example("segments", "make_shapes.py")
    words = ("fedavg", "--on", "shapes.toml", "--set", "models.participants=shape_nets:small")
    assert metrics(*words, "--set", "lr=0.01", "--out", "run")["acc"] > 0.2  # Dice; it is 0 where all is ground
    masks = predicted("run", "server", "shapes.npz", "--trust")
    assert np.mean(np.argmax(masks["values"], axis=1) == np.load("shapes.npz")["masks"]) > 0.9


def test_three_participants_have_three_networks(example):
    example("networks")
    found = json.loads(ran("run", "fedmd", "--on", "mixed.toml", "--rounds", "1", "--json", "--out", "run").stdout)
    assert set(found["metrics"]["participants"]) == {"M0", "M20", "M40"}
    networks = json.loads(Path("run/spec.json").read_text())["recipe"]["networks"]
    assert {networks[name]["model"] for name in ("M0", "M20", "M40")} == {"lenet5", "mlp", "nets:own"}


def test_neighbours_in_a_tree_of_languages_share_a_model(example):
    example("languages", "make_languages.py")
    found = json.loads(ran("run", "hierfavg", "--on", "languages.toml", "--rounds", "3", "--json").stdout)
    assert len(found["metrics"]["participants"]) == 8
    assert found["metrics"]["wdp"] > 0.2  # one letter of 26 is right by chance
    assert found["metrics"]["wdp"] > found["metrics"]["cdp"]


@pytest.mark.slow
def test_three_hospitals_over_tls(example, monkeypatch):
    pytest.importorskip("flwr")
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent / "src"))
    result = runpy.run_path(str(example("hospitals") / "three_hospitals.py"))["main"](2)
    assert result["rounds"] == 2
    assert all(own["private"] > 0.5 for own in result["metrics"]["participants"].values())
    assert set(result["bytes"]) == {"total", "global", "update"}


def test_the_list_of_examples_has_each_folder():
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith("_")}
    page = (EXAMPLES / "README.md").read_text()
    assert {name for name in folders if f"[{name}]({name}/README.md)" in page} == folders


@pytest.mark.slow
def test_a_flower_app_ends_with_the_models_of_one_process(example):
    """`flwr run` on a SuperLink and two SuperNodes gives the digest of the local engine."""
    pytest.importorskip("flwr", reason="needs heterophony[flower]")
    example("flower")
    done = subprocess.run([sys.executable, "rehearse.py"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    from heterophony_flower import task

    plan = task.plan({"method": "fedavg", "rounds": 2, "clients": 2})
    method = plan.build_method()
    clients = {name: {"train": task.rows(name)} for name in plan.participants}
    models = {name: {"model": task.network} for name in (*plan.participants, "server")}
    alone = Federation(method, plan.topology(method), models, clients, tests=task.tests(), seed=plan.seed)
    result = alone.run(rounds=2)
    assert found["digest"] == result.digest
    assert found["bytes"] == result.ledger.bytes()
