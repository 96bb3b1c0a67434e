"""The command line, as a user meets it: what it prints where, how it refuses, and that stopped runs go on."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from click.testing import Result as Answer
from PIL import Image as pil
from typer.testing import CliRunner

from heterophony import cli, engines
from heterophony.base.disk import Disk
from heterophony.cli import demonstration
from heterophony.data import load, to_tensor
from heterophony.models import create
from heterophony.runs import exported, progress
from heterophony.runs.run import Run
from heterophony.settings import shipped
from toys.altering import altered, flipped, row_of

SMALL = """
summary = "Two tiny domains"
rounds = 2
[data]
test = 0.1
test_rows = 20
side = 16
validation = 0.05
public = { fraction = 0.02 }
domains.a = { source = "digits-embedded", rows = 32 }
domains.b = { source = "digits-embedded", rows = 32, degrees = 40 }
[models]
participants = "mlp"
[local]
epochs = 1
lr = 0.1
"""
MIXED = SMALL.replace('"mlp"', '["mlp", "lenet5"]')
BARE = '[data]\nsource = "digits-embedded"\ntest = 0.9\n'
MLP = '[models]\nparticipants = "mlp"\n'


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path):
    """Nobody's data but the embedded ones."""
    monkeypatch.delenv("HETEROPHONY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path) -> Path:
    return written(tmp_path / "small.toml", SMALL)


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> SimpleNamespace:
    """A finished run of FedAvg, and what it printed. Tests that change the folder take `finished`."""
    place = tmp_path_factory.mktemp("example")
    setting = written(place / "small.toml", SMALL)
    answer = call("run", "fedavg", "--on", setting, "--out", place / "run", "--json")
    return SimpleNamespace(folder=place / "run", setting=setting, said=said(answer))


@pytest.fixture
def finished(example, tmp_path) -> Path:
    return Path(shutil.copytree(example.folder, tmp_path / "finished"))


@pytest.fixture(scope="module")
def model(example) -> Path:
    """An exported model."""
    path = example.folder.parent / "model.safetensors"
    assert call("export", example.folder, "--node", "a", "--to", path).exit_code == 0
    return path


@pytest.fixture
def digits(tmp_path) -> Path:
    """A data folder with a small `mnist.npz`."""
    source = load("digits-embedded").train
    folder = tmp_path / "data"
    folder.mkdir()
    halves = {"train_x": source.x[:80], "train_y": source.y[:80], "test_x": source.x[80:90], "test_y": source.y[80:90]}
    np.savez(folder / "mnist.npz", **halves)
    return folder


@pytest.fixture
def process():
    """Starts the program in a process group of its own, which an interrupt reaches even if this one ignores it."""
    children: list[subprocess.Popen] = []

    def start(*words: object, code: str = "") -> subprocess.Popen:
        command = ["-c", f"{code}\nfrom heterophony.cli import main; main()"] if code else ["-m", "heterophony"]
        child = subprocess.Popen(
            [sys.executable, *command, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def call(*words: object) -> Answer:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def said(answer: Answer):
    """What `--json` printed: one line of JSON and nothing else."""
    assert answer.exit_code == 0, (answer.stderr, answer.exception)
    (line,) = answer.stdout.splitlines()
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def refused(answer: Answer, *words: object) -> str:
    """Bad input: exit code 2, one clear line on stderr, nothing else."""
    assert answer.exit_code == 2, (answer.exit_code, answer.exception, answer.stderr)
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("heterophony: ")
    for word in words:
        assert str(word) in line
    return line


def until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def tables(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "metrics.jsonl").read_bytes(), (folder / "ledger.jsonl").read_bytes()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- what a run says --------------------------------------------------------------------------------------------
def test_a_run_as_json(example):
    found = example.said
    assert {"method", "setting", "seed", "rounds", "metrics", "bytes", "digest", "seconds"} <= set(found)
    assert (found["method"], found["setting"], found["seed"], found["rounds"]) == ("fedavg", "small", 0, 2)
    for metric in ("acc", "wdp", "cdp", "intra", "inter", "worst"):
        assert 0 <= found["metrics"][metric] <= 1
    assert set(found["metrics"]["participants"]) == {"a", "b"}
    assert set(found["bytes"]) == {"total", "global", "update"}
    assert found["bytes"]["total"] == found["bytes"]["global"] + found["bytes"]["update"] > 0
    assert len(found["digest"]) == 64
    assert found["seconds"] > 0


def test_without_json_a_table_that_fits_80_columns(example):
    for answer in (call("show", example.folder), call("ledger", example.folder)):
        assert answer.exit_code == 0
        assert "server" in answer.stdout or "participant" in answer.stdout
        assert max(map(len, answer.stdout.splitlines())) <= 80
        assert answer.stderr == ""


def test_metrics_are_those_of_the_last_round(example):
    rows = [json.loads(line) for line in (example.folder / "metrics.jsonl").read_text().splitlines()]
    wanted = {"product": "global", "quantity": "accuracy", "split": "test", "round": 1}
    last = [row for row in rows if wanted.items() <= row.items()]
    assert len(last) == 2
    assert example.said["metrics"]["acc"] == pytest.approx(sum(r["sum"] for r in last) / sum(r["n"] for r in last))


def test_same_seed_same_digest_and_other_seed_another(example, small):
    again = said(call("run", "fedavg", "--on", small, "--json"))
    assert again["digest"] == example.said["digest"]
    assert again["metrics"] == example.said["metrics"]
    other = said(call("run", "fedavg", "--on", small, "--json", "--seed", 1))
    assert other["seed"] == 1
    assert other["digest"] != example.said["digest"]


def test_a_rehearsal_that_is_refused_leaves_no_folder(small, tmp_path):
    out = tmp_path / "out"
    refused(call("run", "fedavg", "--on", small, "--engine", "flower", "--out", out), "rehearses, without --out")
    assert not out.exists()


def test_process_engine_gives_the_same_digest(example, small, tmp_path):
    found = said(call("run", "fedavg", "--on", small, "--json", "--engine", "process", "--out", tmp_path / "out"))
    assert {k: v for k, v in found.items() if k != "seconds"} == {
        k: v for k, v in example.said.items() if k != "seconds"
    }
    assert tables(tmp_path / "out") == tables(example.folder)


def test_methods_for_different_networks_take_a_mixed_setting(tmp_path):
    setting = written(tmp_path / "mixed.toml", MIXED)
    found = said(call("run", "fml", "--on", setting, "--rounds", 1, "--json"))
    assert (found["rounds"], set(found["bytes"])) == (1, {"total", "global", "meme"})


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_device(small, device):
    assert said(call("run", "solo", "--on", small, "--rounds", 1, "--device", device, "--json"))["rounds"] == 1


def test_set_reaches_the_method_and_the_setting(example, small):
    short = said(call("run", "fedavg", "--on", small, "--set", "lr=0.3", "--set", "weighted=false", "--json"))
    whole = said(call("run", "fedavg", "--on", small, "--set", "local.lr=0.3", "--set", "weighted=false", "--json"))
    assert short["digest"] == whole["digest"] != example.said["digest"]
    several = said(call("run", "fedavg", "--on", small, "--rounds", 1, "--set", "data.clients=2", "--json"))
    assert set(several["metrics"]["participants"]) == {"a.0", "a.1", "b.0", "b.1"}


def test_shipped_settings_need_no_data_folder(tmp_path):
    found = said(call("run", "solo", "--on", "rotated-mnist", "--rounds", 1, "--data", tmp_path / "nosuch", "--json"))
    assert (found["setting"], len(found["metrics"]["participants"])) == ("rotated-mnist", 4)


def test_progress_goes_to_stderr(small, monkeypatch):
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    answer = call("run", "fedavg", "--on", small, "--json")
    assert said(answer)["rounds"] == 2
    assert "fedavg: round 2 of 2  accuracy" in answer.stderr


def test_progress_tells_the_accuracy_of_the_last_round(tmp_path, monkeypatch):
    setting = written(tmp_path / "s.toml", SMALL.replace("rows = 32", "rows = 300").replace("rounds = 2", "rounds = 6"))
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    answer = call("run", "fedavg", "--on", setting, "--json")
    last = [line for line in answer.stderr.splitlines() if "round 6 of 6" in line][-1]
    assert f"accuracy {100 * said(answer)['metrics']['acc']:.1f} %" in last


# -- the other commands -----------------------------------------------------------------------------------------
def test_show_gives_the_same_object(example):
    assert said(call("show", example.folder, "--json")) == example.said


def test_ledger_adds_up(example):
    found = said(call("ledger", example.folder, "--json"))
    assert sum(edge["bytes"] for edge in found["edges"]) == example.said["bytes"]["total"]
    assert {(edge["from"], edge["to"]) for edge in found["edges"]} == {
        ("server", "a"),
        ("server", "b"),
        ("a", "server"),
        ("b", "server"),
    }
    assert found["incidents"] == []


def test_what_a_participant_says_is_no_markup(example, tmp_path):
    """A refusal's text may come from another machine."""
    folder = shutil.copytree(example.folder, tmp_path / "run")
    detail = "refused: [/x] and [bold]this[/bold] :smile:"
    row = {"time": 1.0, "node": "a", "incident": "refused", "detail": detail}
    altered(folder, "ledger.jsonl", lambda text: text + json.dumps(row) + "\n")
    answer = call("ledger", folder)
    assert answer.exit_code == 0, answer.exception
    assert detail in answer.stdout


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("methods", {"solo", "agg", "fedavg", "fedprox", "fml"}),
        ("settings", {"rotated-mnist", "rotated-mnist-mixed"}),
        ("data", {"digits-embedded", "mnist"}),
    ],
)
def test_lists(command, expected, monkeypatch):
    found = said(call(command, "--json"))
    assert expected <= {entry["name"] for entry in found}
    assert all(entry["summary"] for entry in found)
    monkeypatch.setenv("COLUMNS", "80")
    answer = call(command)
    assert answer.exit_code == 0
    table = [line for line in answer.stdout.splitlines() if not line.startswith("looked in")]  # a path may be long
    assert max(map(len, table)) <= 80
    assert all(name in answer.stdout for name in expected)


def test_data_in_a_folder_are_found(digits):
    (mnist,) = (entry for entry in said(call("data", "--data", digits, "--json")) if entry["name"] == "mnist")
    assert (mnist["found"], mnist["train"], mnist["test"], mnist["partial"]) == (True, 80, 10, True)
    assert mnist["where"] == str(digits / "mnist.npz")


def test_help_of_every_command():
    assert "Commands" in call("--help").stdout
    for command in ("run", "resume", "show", "ledger", "methods", "settings", "data", "export", "predict", "demo"):
        answer = call(command, "--help")
        assert answer.exit_code == 0
        assert max(map(len, answer.stdout.splitlines())) <= 80


def test_export_and_predict(model, tmp_path):
    network, about = exported.load(model)
    assert (about["node"], about["network"]["name"]) == ("a", "mlp")
    assert not network.training
    train = load("digits-embedded").train
    np.savez(tmp_path / "images.npz", x=train.x[:7, ..., 0])
    found = said(call("predict", model, tmp_path / "images.npz", "--json"))
    assert len(found["labels"]) == len(found["confidence"]) == 7
    assert all(label in range(10) for label in found["labels"])
    assert all(0.1 <= sure <= 1 for sure in found["confidence"])
    answer = call("predict", model, tmp_path / "images.npz")
    assert [line.split(": ")[1].split()[0] for line in answer.stdout.splitlines()] == [str(n) for n in found["labels"]]


def test_predictions_see_images_as_training_did(small, tmp_path):
    folder = tmp_path / "run"
    assert call("run", "solo", "--on", small, "--set", "data.mean=0.1", "--out", folder).exit_code == 0
    assert call("export", folder, "--node", "a", "--to", tmp_path / "m").exit_code == 0
    images = load("digits-embedded").train.x[:5]
    np.savez(tmp_path / "images.npz", x=images)
    network, _ = exported.load(tmp_path / "m")
    sure, labels = network(to_tensor(images, side=16, mean=0.1)).softmax(-1).max(-1)
    found = said(call("predict", tmp_path / "m", tmp_path / "images.npz", "--json"))
    assert found["labels"] == labels.tolist()
    assert found["confidence"] == pytest.approx(sure.tolist(), abs=1e-6)


def test_exported_weights_are_those_of_the_snapshot(example, model):
    weights = safetensors.torch.load_file(model)
    with Run.open(example.folder) as run:
        kept = run.node_state("a")["node"]["models"]["model"]
    assert weights.keys() == kept.keys()
    assert all(torch.equal(weights[key], kept[key]) for key in weights)


def test_export_needs_no_data(digits, tmp_path):
    setting = written(tmp_path / "s.toml", f'rounds = 1\n[data]\nsource = "mnist"\n{MLP}')
    assert call("run", "solo", "--on", setting, "--data", digits, "--out", tmp_path / "out").exit_code == 0
    assert call("export", tmp_path / "out", "--node", "c0", "--to", tmp_path / "m").exit_code == 0


def test_export_names_the_file_as_it_is(example, tmp_path):
    refused = call("export", example.folder, "--node", "a", "--to", tmp_path / "nowhere" / "m.safetensors")
    assert f"there is no folder {tmp_path / 'nowhere'}" in refused.stderr
    answer = call("export", example.folder, "--node", "a", "--to", tmp_path / "a[b].safetensors")
    assert "a[b].safetensors" in answer.stderr.replace("\n", "")


def test_demo_runs_once_and_is_shown_again(small, tmp_path, monkeypatch):
    monkeypatch.setattr(
        demonstration, "RUNS", (("solo", str(small), "alone", 1), ("fedavg", str(small), "together", None))
    )
    first, again = call("demo", "--out", tmp_path / "demo"), call("demo", "--out", tmp_path / "demo")
    assert (first.exit_code, again.exit_code) == (0, 0)
    table = [line for line in first.stdout.splitlines() if line.startswith("│")]
    assert [line.split()[1] for line in table] == ["solo", "fedavg"]
    assert table == [line for line in again.stdout.splitlines() if line.startswith("│")]
    assert said(call("show", tmp_path / "demo" / "fedavg" / "seed-0", "--json"))["method"] == "fedavg"


def test_a_second_demo_does_not_change_what_the_first_took(small, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "RUNS", (("solo", str(small), "alone", None),))
    call("demo", "--out", tmp_path / "demo")
    before = said(call("show", tmp_path / "demo" / "solo" / "seed-0", "--json"))
    call("demo", "--out", tmp_path / "demo")
    assert said(call("show", tmp_path / "demo" / "solo" / "seed-0", "--json")) == before


def test_a_demo_that_can_draw_no_page_says_so_before_it_runs(small, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "RUNS", (("solo", str(small), "alone", 1),))
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    answer = call("demo", "--out", tmp_path / "demo")
    assert answer.exit_code == 0, answer.exception
    first, *rest = answer.stderr.splitlines()
    assert "no page of figures: a report needs plotly: pip install 'heterophony[report]'" in first
    assert any(line.startswith("1 of 1: solo") for line in rest)
    assert answer.stdout.splitlines()[-1].endswith(f"`heterophony report {tmp_path / 'demo'}` makes the page.")


# -- going on ---------------------------------------------------------------------------------------------------
def test_resume_of_a_finished_run_shows_it(example, finished):
    found = said(call("resume", finished, "--json"))
    assert {**found, "seconds": 0} == {**example.said, "seconds": 0}
    assert tables(finished) == tables(example.folder)


def test_looking_at_a_finished_run_takes_no_seconds(example, finished):
    call("resume", finished)
    assert said(call("show", finished, "--json")) == example.said


def test_rounds_extend_a_finished_run(example, small, tmp_path):
    out = tmp_path / "out"
    short = said(call("run", "fedavg", "--on", small, "--rounds", 1, "--out", out, "--json"))
    longer = said(call("resume", out, "--rounds", 2, "--json"))
    assert (short["rounds"], longer["rounds"]) == (1, 2)
    assert longer["digest"] == example.said["digest"]
    assert longer["metrics"] == example.said["metrics"]
    assert tables(out) == tables(example.folder)
    assert said(call("show", out, "--json")) == longer


def test_run_again_with_the_same_arguments_resumes(example, finished):
    found = said(call("run", "fedavg", "--on", example.setting, "--out", finished, "--json"))
    assert found["digest"] == example.said["digest"]
    assert tables(finished) == tables(example.folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("--seed", 7), "seed"),
        (("--set", "weighted=false"), "settings"),
        (("--set", "data.clients=2"), ""),
    ],
)
def test_another_run_in_the_same_folder_is_refused(example, finished, change, named):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    refused(call("run", "fedavg", "--on", example.setting, "--out", finished, *change), finished, named)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("change", "was", "asked"), [("lr=0.25", "0.1", "0.25"), ("data.domains.b.degrees=35", "40", "35")]
)
def test_the_refusal_says_what_differs(example, finished, change, was, asked):
    line = refused(call("run", "fedavg", "--on", example.setting, "--out", finished, "--set", change))
    assert change.split("=")[0].split(".")[-1] in line
    assert was in line
    assert asked in line


EVERY_WAVE = "from heterophony.runs.run import Run; Run.due = lambda self: True"


def test_a_killed_run_goes_on_to_the_same_end(process, tmp_path):
    """SIGKILL in the middle of many snapshots; then `resume`, and on a copy `run` once more."""
    setting = written(tmp_path / "s.toml", SMALL.replace("rounds = 2", "rounds = 30"))
    whole = said(call("run", "fedavg", "--on", setting, "--out", tmp_path / "whole", "--json"))
    out = tmp_path / "out"
    child = process("run", "fedavg", "--on", setting, "--out", out, code=EVERY_WAVE)
    ledger = out / "ledger.jsonl"
    until(lambda: child.poll() is not None or (ledger.exists() and len(ledger.read_text().splitlines()) > 8))
    child.kill()
    child.communicate()
    assert child.returncode == -signal.SIGKILL, "it was finished before it was killed"
    so_far = said(call("show", out, "--json"))
    assert so_far["finished"] is False
    assert 0 < so_far["rounds"] < 30
    assert call("show", out).exit_code == 0
    copy = shutil.copytree(out, tmp_path / "copy")
    for folder, words in ((out, ("resume", out)), (copy, ("run", "fedavg", "--on", setting, "--out", copy))):
        found = said(call(*words, "--json"))
        assert {**found, "seconds": 0} == {**whole, "seconds": 0}
        assert tables(folder) == tables(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interrupt_leaves_a_run_that_can_be_resumed(number, process, tmp_path):
    """Real processes, all told to stop, with every snapshot due; another may not use the folder meanwhile."""
    setting = written(tmp_path / "s.toml", SMALL.replace("rounds = 2", "rounds = 100000"))
    out = tmp_path / "out"
    child = process("run", "fedavg", "--on", setting, "--out", out, "--workers", "2", "--json", code=EVERY_WAVE)
    ledger = out / "ledger.jsonl"
    until(lambda: child.poll() is not None or (ledger.exists() and len(ledger.read_text().splitlines()) > 8))
    refused(call("resume", out), "in use by another process")
    os.killpg(child.pid, number)
    stdout, stderr = child.communicate(timeout=20)
    assert child.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr
    assert "heterophony resume" in stderr
    done = said(call("show", out, "--json"))["rounds"]
    assert 0 < done < 100000
    manifest = json.loads((out / "snapshot" / "manifest.json").read_text())
    assert names(out / "snapshot") >= {"manifest.json", *manifest["files"].values()}
    assert call("export", out, "--node", "a", "--to", tmp_path / "m").exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the child under /proc")
@pytest.mark.slow
def test_an_interrupt_is_the_parents_affair(process, tmp_path):
    """A terminal sends Ctrl-C to a reaction's process too; whoever gets it first, there is no traceback."""
    setting = written(tmp_path / "s.toml", SMALL.replace("epochs = 1", "epochs = 1000000"))
    out = tmp_path / "out"
    parent = process("run", "fedavg", "--on", setting, "--out", out, "--engine", "process")
    until(lambda: parent.poll() is not None or (out / "snapshot" / "manifest.json").exists())
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    until(lambda: children.read_text())
    time.sleep(0.5)
    os.kill(int(children.read_text().split()[0]), signal.SIGINT)
    time.sleep(0.5)
    assert parent.poll() is None
    os.killpg(parent.pid, signal.SIGINT)
    time.sleep(0.5)
    assert parent.poll() is None  # it would save after the present reaction, which takes for ever
    os.killpg(parent.pid, signal.SIGINT)
    stderr = parent.communicate(timeout=20)[1]
    assert parent.returncode == 130
    assert "Traceback" not in stderr


def test_an_interrupt_names_the_folder(small, tmp_path, monkeypatch):
    monkeypatch.setattr(engines.Engine, "_loop", interrupted)
    answer = call("run", "fedavg", "--on", small, "--out", tmp_path / "out")
    assert answer.exit_code == 130
    assert f"heterophony resume {tmp_path / 'out'}" in answer.stderr.replace("\n", "")


def test_an_interrupt_without_a_folder_promises_nothing(small, monkeypatch):
    monkeypatch.setattr(engines.Engine, "_loop", interrupted)
    answer = call("run", "fedavg", "--on", small)
    assert answer.exit_code == 130
    assert "resume" not in answer.stderr


def test_show_knows_that_an_extension_was_interrupted(finished, monkeypatch):
    whole = engines.Engine._loop
    monkeypatch.setattr(engines.Engine, "_loop", interrupted)
    assert call("resume", finished, "--rounds", 3).exit_code == 130
    monkeypatch.setattr(engines.Engine, "_loop", whole)
    assert said(call("show", finished, "--json"))["finished"] is False


def interrupted(engine: engines.Engine) -> None:
    engine._save()
    raise KeyboardInterrupt


# -- data of one's own -------------------------------------------------------------------------------------------
OWN = """
rounds = 1
[data]
source = "mine.npz"
clients = 2
[models]
participants = "mlp"
"""


def own(folder: Path) -> Path:
    """A setting, and beside it the file of arrays that it names."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    halves = {"train": 40, "test": 20}
    images = {f"{half}_x": rng.integers(0, 256, (count, 8, 8), np.uint8) for half, count in halves.items()}
    np.savez(folder / "mine.npz", **images, **{f"{half}_y": np.arange(count) % 4 for half, count in halves.items()})
    return written(folder / "own.toml", OWN)


def test_data_beside_the_setting_are_found_again_from_anywhere(tmp_path, monkeypatch):
    setting = own(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    first = said(call("run", "fedavg", "--on", "here/own.toml", "--out", "run", "--json"))
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())
    assert spec["recipe"]["setting"]["data"]["source"] == str(tmp_path / "here" / "mine.npz")
    assert {name for name, _, _ in spec["tests"]} == {"mine"}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said(call("resume", tmp_path / "run", "--rounds", "2", "--json"))
    # The same file in another place is the same run: nothing random follows from the path.
    moved = own(tmp_path / "there")
    assert said(call("run", "fedavg", "--on", moved, "--json"))["digest"] == first["digest"]
    (setting.parent / "mine.npz").unlink()
    refused(call("resume", tmp_path / "run", "--rounds", "3"), f"no file {tmp_path / 'here' / 'mine.npz'}")


def test_a_path_that_is_set_is_that_of_the_current_folder(tmp_path, monkeypatch, small):
    own(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    changes = ("--set", "data.domains.a.source=mine.npz", "--set", "data.domains.b.source=mine.npz")
    assert set(said(call("run", "solo", "--on", small, *changes, "--json"))["metrics"]["participants"]) == {"a", "b"}
    refused(call("run", "solo", "--on", small, "--set", "data.domains.a.source=none.npz"), "none.npz", "here")


def test_all_missing_sets_are_named_with_how_to_get_them(tmp_path):
    text = refused(call("run", "fml", "--on", "digits", "--data", tmp_path), "mnist, mnistm, svhn, usps, cifar100")
    assert "--fetch mnist --fetch svhn --fetch usps --fetch cifar100" in text


def test_one_setting_is_shown(small):
    shown = call("settings", "digits")
    assert shown.exit_code == 0
    assert shown.stdout.strip() == shipped()["digits"].strip()
    assert said(call("settings", small, "--json"))["toml"] == SMALL.strip()
    refused(call("settings", "digitz"), "perhaps you meant 'digits'")


# -- refusals: names, options, settings ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fedavgg",), ("no method 'fedavgg'", "'fedavg'")),
        (("",), ("no method ''", "heterophony methods")),
        (("solo", "--set", "nosuch=1"), ("no option 'nosuch'", "local.lr")),
        (("solo", "--set", "lr=quick"), ("local.lr", "'quick'", "number")),
        (("solo", "--set", "epochs=1.5"), ("local.epochs", "1.5", "integer")),
        (("fedavg", "--set", "weighted=maybe"), ("weighted", "'maybe'", "boolean")),
        (("solo", "--set", "optimiser=rmsprop"), ("local.optimiser", "'sgd'", "'adam'")),
        (("solo", "--set", "lr"), ("--set 'lr'", "key=value")),
        (("solo", "--set", "=1"), ("key=value",)),
        (("solo", "--set", "data.clients=many"), ("data.clients", "integer")),
        (("solo", "--set", "data.nosuch=1"), ("data.nosuch",)),
        (("solo", "--set", "data.domains.a.rows=5000"), ("domain a", "5000")),
        (("solo", "--set", "data.domains.a.source=nosuch"), ("no data set 'nosuch'", "heterophony data", ".npz")),
        (("solo", "--set", "models.participants=lenet"), ("unknown network 'lenet'", "lenet5")),
        (("solo", "--set", "local.data=all", "--set", "data.public=none"), ("data.public",)),
        (("fml", "--set", "alhpa=1"), ("perhaps you meant 'alpha'", "alpha, beta, cohort.fraction", "local.initial")),
        (("fml", "--set", "alpha={strat=1, stop=0, over=9}"), ("alpha", "a number, or a table such as { start = ")),
        (("fml", "--set", "alpha={start=1, stop=0, over=0}"), ("alpha", "a ramp goes over at least one round, got 0")),
        (("solo", "--set", "lr={start=0.1, factor=0.5}"), ("local.lr", "stairs have either every (rounds) or at")),
        (("solo", "--set", "lr={start=0.1, stop=-1, over=3}"), ("local.lr", "lr > 0")),
        (("solo", "--set", "epochs={a=2}"), ("local.epochs has no value for b", "'*'")),
        (("solo", "--set", 'batch={ab=2, "*"=4}'), ("local.batch: no node, level or role is called 'ab'",)),
        (("solo", "--set", "nesterov=true"), ("local.nesterov", "momentum > 0")),
        (("solo", "--set", "clip=-1"), ("local.clip", "a length > 0")),
        (("scaffold", "--set", "clip=1"), ("leave out local.clip, got 1.0",)),
        (("fml", "--set", "profiles.aa.latency=1"), ("profiles", "'aa'", "there are a, b, client, server")),
        (("fml", "--set", "data.clients=50"), ("domain a: data.partition iid: 50 clients need 50 rows, there are 32",)),
        (("solo", "--set", "rounds=0"), ("--rounds N, a whole number of at least 1",)),
        (("solo", "--engine", "warp"), ("no engine 'warp'", "local", "process")),
        (("solo", "--set", "models.same=byte-cnn"), ("models: byte-cnn reads texts", "has images")),
        (
            ("fccl", "--set", "data.public={fraction=0.1}", "--set", "local_every=0"),
            ("local_every is a whole number >= 1",),
        ),
        (("solo", "--set", "local.initial=-1"), ("initial is a whole number >= 0, got -1",)),
        (("solo", "--device", "tpu"), ("no device 'tpu'", "auto, cpu or cuda")),
    ],
)
def test_bad_input(small, words, expected):
    refused(call("run", *words, "--on", small), *expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_where_there_is_none(small):
    refused(call("run", "solo", "--on", small, "--device", "cuda"), "--device cpu")


@pytest.mark.parametrize(
    "change",
    ["lr=-1", "momentum=-0.5", "batch=0", "fraction=2", "fraction=0", "quorum=-1", "deadline=-1"],
)
def test_values_out_of_range(small, change):
    refused(call("run", "fedavg", "--on", small, "--set", change), change.split("=")[0])


@pytest.mark.parametrize("change", ["data.side.x=1", "data.domains.a.source.x=1", "models.participants=[]"])
def test_changes_that_fit_nowhere(small, change):
    refused(call("run", "solo", "--on", small, "--set", change), change.split("=")[0])


def test_a_part_cannot_be_a_value(small):
    assert "datapart" not in refused(call("run", "solo", "--on", small, "--set", "data=own"), "data")


def test_rounds_by_set_points_to_rounds(small):
    refused(call("run", "solo", "--on", small, "--set", "rounds=3"), "--rounds")


def test_a_method_that_averages_refuses_different_networks(tmp_path):
    setting = written(tmp_path / "mixed.toml", MIXED)
    for method in ("fedavg", "fedprox"):
        refused(call("run", method, "--on", setting, "--out", tmp_path / "out"), method, "same network", "lenet5, mlp")
    refused(call("run", "fedavg", "--on", "rotated-mnist-mixed"), "fedavg", "same network")
    assert not (tmp_path / "out").exists()


def test_public_data_that_are_not_there(tmp_path):
    setting = written(tmp_path / "s.toml", SMALL.replace("public = { fraction = 0.02 }\n", ""))
    refused(call("run", "agg", "--on", setting), "agg", "public data")


def test_unknown_settings(tmp_path):
    refused(call("run", "solo", "--on", "rotated-mnst"), "'rotated-mnst'", "'rotated-mnist'", ".toml")
    refused(call("run", "solo", "--on", tmp_path / "nosuch.toml"), "nosuch.toml", "no such file")
    refused(call("run", "solo", "--on", tmp_path), tmp_path, "directory")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rounds = \n", ("not TOML", "line 1")),
        ("rounds = 0\n" + BARE + MLP, ("rounds", "greater than or equal to 1")),
        ("rouns = 3\n" + BARE + MLP, ("rouns",)),
        (BARE, ("models", "required")),
        (MLP, ("data", "required")),
        (BARE + "rotations = [0, 'steep']\n" + MLP, ("data.rotations.1", "number")),
        (BARE + "partition = { kind = 'fair' }\n" + MLP, ("data.partition.kind", "'iid'", "'dirichlet'")),
        (BARE + "partition = { kind = 'dirichlet' }\n" + MLP, ("data.partition", "alpha")),
        (BARE + "public = {}\n" + MLP, ("data.public", "fraction", "source")),
        (BARE + "domains.a = { source = 'mnist' }\n" + MLP, ("data", "either domains or a source")),
        (BARE + "rotations = [0, 20, 20]\n" + MLP, ("data",)),
        (BARE + "clients = 4000\n" + MLP, ("4000 clients", "fewer")),
        (BARE + "side = 9\n" + MLP.replace("mlp", "lenet5"), ("LeNet5", "16x16")),
        (BARE.replace("test = 0.9", "") + MLP, ("digits-embedded", "data.test")),
        (BARE + MLP + "[methods.solo]\nnosuch = 1\n", ("no option 'nosuch'",)),
        (BARE + MLP + "[local]\nlr = 'quick'\n", ("local.lr", "'quick'")),
        (BARE + MLP + "[joins]\nnobody = 3.0\n", ("joins", "'nobody'")),
        (BARE + MLP + "[local]\nepoks = 3\n", ("[local]", "'epoks'", "epochs")),
        (BARE + MLP + "[methods.sollo]\nepochs = 3\n", ("methods.sollo",)),
    ],
)
def test_mistakes_in_a_settings_file(tmp_path, text, expected):
    setting = written(tmp_path / "mine.toml", text)
    refused(call("run", "solo", "--on", setting, "--rounds", 1), *expected)


@pytest.mark.parametrize(
    "text",
    [BARE + MLP + "[local]\nlr = 'quick'\n", BARE + "partition = { kind = 'dirichlet' }\n" + MLP],
    ids=["local", "partition"],
)
def test_a_mistake_names_the_file(tmp_path, text):
    line = refused(call("run", "solo", "--on", written(tmp_path / "mine.toml", text)), "mine.toml")
    assert "__init__" not in line


def test_a_settings_file_that_is_no_text(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    refused(call("run", "solo", "--on", tmp_path / "mine.toml"), "mine.toml")


def test_missing_data(tmp_path):
    out = tmp_path / "out"
    line = refused(call("run", "solo", "--on", "mnist-shards", "--data", tmp_path / "here", "--out", out), "mnist.npz")
    assert str(tmp_path / "here") in line
    assert "HETEROPHONY_DATA" in line
    assert not out.exists()


def test_damaged_data(digits, tmp_path):
    (digits / "mnist.npz").write_bytes(b"no zip")
    refused(call("run", "solo", "--on", "mnist-shards", "--data", digits), "mnist.npz")
    (mnist,) = (entry for entry in said(call("data", "--data", digits, "--json")) if entry["name"] == "mnist")
    assert mnist["found"] is False
    assert mnist["problem"]


def test_data_are_looked_for_in_the_environment_too(digits, tmp_path, monkeypatch):
    setting = written(tmp_path / "s.toml", f'rounds = 1\n[data]\nsource = "mnist"\n{MLP}')
    given = said(call("run", "solo", "--on", setting, "--data", digits, "--out", tmp_path / "out", "--json"))
    monkeypatch.setenv("HETEROPHONY_DATA", str(digits))
    assert said(call("run", "solo", "--on", setting, "--json"))["digest"] == given["digest"]
    monkeypatch.delenv("HETEROPHONY_DATA")
    refused(call("resume", tmp_path / "out", "--rounds", 2), "mnist.npz")
    assert said(call("resume", tmp_path / "out", "--rounds", 2, "--data", digits, "--json"))["rounds"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("run", "solo"),
        ("run", "--on", "rotated-mnist"),
        ("run", "solo", "--on", "x", "--rounds", 0),
        ("shwo",),
        ("show",),
    ],
)
def test_what_is_missing_on_the_command_line(words):
    answer = call(*words)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr


# -- refusals: folders and files ----------------------------------------------------------------------------------
def test_out_is_a_file(small, tmp_path):
    file = written(tmp_path / "file", "mine")
    refused(call("run", "solo", "--on", small, "--out", file), file)
    refused(call("run", "solo", "--on", small, "--out", file / "below"), file)
    assert file.read_text() == "mine"


def test_out_is_a_folder_with_something_else(small, tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    written(folder / "thesis.tex", "mine")
    refused(call("run", "solo", "--on", small, "--out", folder), folder)
    assert names(folder) == {"thesis.tex"}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ("--engine", "warp"),
            id="engine",
        ),
        pytest.param(("--set", "models.participants=lenet"), id="network"),
        pytest.param(("--set", "data.side=8", "--set", "models.participants=lenet5"), id="size"),
    ],
)
def test_a_refused_run_leaves_no_folder(small, tmp_path, words):
    refused(call("run", "solo", "--on", small, "--out", tmp_path / "out", *words))
    assert not (tmp_path / "out").exists()


def test_folders_without_a_run(tmp_path):
    for folder in (tmp_path / "nosuch", tmp_path, written(tmp_path / "file", "")):
        for words in (("resume",), ("show",), ("ledger",), ("export", "--node", "a", "--to", tmp_path / "m")):
            refused(call(words[0], folder, *words[1:]), folder)
    assert not (tmp_path / "m").exists()
    assert not (tmp_path / "nosuch").exists()


@pytest.mark.parametrize("command", ["resume", "show", "ledger"])
def test_a_folder_that_may_not_be_read(finished, monkeypatch, command):
    def denied(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    refused(call(command, finished), finished, "permission denied")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(small, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    refused(call("run", "solo", "--on", small, "--out", tmp_path / "locked" / "out"), "permission denied")


def damage(folder: Path, what: str) -> None:
    manifest = folder / "snapshot" / "manifest.json"
    node, place = row_of(folder, "a")
    match what:
        case "flipped":
            flipped(node, place)
        case "short":
            node.write_bytes(node.read_bytes()[:-5])
        case "missing":
            node.unlink()
        case "manifest":
            manifest.write_text("{")
        case "odd manifest":
            manifest.write_text("[]")
        case "poor manifest":
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": {}}))
        case "metrics":
            (folder / "metrics.jsonl").write_text("")
        case "odd metrics":
            text = (folder / "metrics.jsonl").read_text()
            (folder / "metrics.jsonl").write_text("x" + text[1:])
        case "spec":
            (folder / "spec.json").write_text("{")
        case "old":
            (folder / "spec.json").write_text('{"format": 0}')


@pytest.mark.parametrize(
    "what",
    [
        "flipped",
        "short",
        "missing",
        "manifest",
        "metrics",
        "spec",
        "old",
        "odd manifest",
        "poor manifest",
        "odd metrics",
    ],
)
def test_a_corrupt_run(finished, what):
    damage(finished, what)
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    refused(call("resume", finished, "--rounds", 3, "--json"), finished)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_export_of_a_corrupt_snapshot(finished, tmp_path):
    damage(finished, "flipped")
    refused(call("export", finished, "--node", "a", "--to", tmp_path / "m"), "damaged")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b"\xff"])
def test_show_of_a_corrupt_result(finished, content):
    (finished / "result.json").write_bytes(content)
    refused(call("show", finished), finished)


def test_export_refusals(example, tmp_path):
    to = tmp_path / "m"
    refused(call("export", example.folder, "--node", "nosuch", "--to", to), "no node 'nosuch'", "server, a, b")
    refused(call("export", example.folder, "--node", "a", "--model", "x", "--to", to), "no model 'x'", "model")
    refused(call("export", example.folder, "--node", "a", "--to", tmp_path / "nosuch" / "m"), "nosuch")
    assert not to.exists()


def test_export_to_a_folder(example, tmp_path):
    (tmp_path / "here").mkdir()
    refused(call("export", example.folder, "--node", "a", "--to", tmp_path / "here"), "here")
    assert names(tmp_path) == {"here"}


def test_files_that_predict_cannot_read(model, tmp_path):

    pil.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "whole.png")
    data = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2 + 10])
    np.save(tmp_path / "plain.npy", np.zeros((1, 28, 28), np.uint8))
    (tmp_path / "plain.npy").rename(tmp_path / "plain.npz")
    refused(call("predict", model, tmp_path / "cut.png"), f"{tmp_path / 'cut.png'} cannot be read", "replace the file")
    refused(call("predict", model, tmp_path / "plain.npz"), f"{tmp_path / 'plain.npz'} is not an .npz file")


def test_predict_reads_images_only(tmp_path):
    network = {"name": "byte-cnn", "in_channels": 1, "size": 32, "classes": 2}
    about = {"format": exported.UNSUMMED, "network": network, "pixels": {}, "labels": []}
    weights = {k: v.contiguous() for k, v in create(**network).state_dict().items()}
    safetensors.torch.save_file(weights, tmp_path / "m", {"heterophony": json.dumps(about)})
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 32, 32), np.uint8))
    refused(call("predict", tmp_path / "m", tmp_path / "x.npz"), "byte-cnn reads texts; `predict` reads images")


def test_predict_refusals(model, tmp_path):
    images, text = tmp_path / "images.npz", written(tmp_path / "text", "no model")
    np.savez(images, x=np.zeros((2, 28, 28), np.uint8))
    np.savez(tmp_path / "float.npz", x=np.zeros((2, 28, 28), np.float32))
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    safetensors.torch.save_file({"w": torch.zeros(1)}, tmp_path / "plain")
    refused(call("predict", text, images), text, "heterophony export")
    refused(call("predict", tmp_path / "plain", images), "plain", "heterophony export")
    refused(call("predict", tmp_path / "nosuch", images), "nosuch", "no such file")
    refused(call("predict", model, tmp_path / "nosuch.npz"), "nosuch.npz", "no such file")
    refused(call("predict", model, tmp_path / "other.npz"), "`x`", "z")
    refused(call("predict", model, tmp_path / "float.npz"), "uint8")


@pytest.mark.parametrize("kind", ["text", "objects"])
def test_images_that_cannot_be_read(model, tmp_path, kind):
    images = written(tmp_path / "images.npz", "no zip")
    if kind == "objects":
        np.savez(images, x=np.array([None]))
    refused(call("predict", model, images), images)


@pytest.mark.parametrize(
    "about", [{}, {"network": {"name": "mlp", "in_channels": 1, "size": 16, "classes": 10}}], ids=["empty", "other"]
)
def test_a_model_file_that_does_not_fit(tmp_path, about):
    images, odd = tmp_path / "images.npz", tmp_path / "odd"
    np.savez(images, x=np.zeros((2, 28, 28), np.uint8))
    safetensors.torch.save_file({"w": torch.zeros(1)}, odd, {"heterophony": json.dumps(about)})
    refused(call("predict", odd, images), odd)


def test_a_folder_is_no_model(tmp_path):
    np.savez(tmp_path / "images.npz", x=np.zeros((2, 28, 28), np.uint8))
    refused(call("predict", tmp_path, tmp_path / "images.npz"), tmp_path)


# -- a full disk --------------------------------------------------------------------------------------------------
class Full:
    """`Disk.write` on a disk that is full after so many writes: half of the file still fits."""

    def __init__(self, after: int) -> None:
        self.left, self.write = after, Disk.write

    def __get__(self, disk, kind=None):
        return lambda path, data: self(disk, path, data)

    def __call__(self, disk: Disk, path: Path, data: bytes) -> None:
        self.left -= 1
        if self.left < 0:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        self.write(disk, path, data)


@pytest.mark.parametrize("after", [0, 1, 2, 5, 7])
def test_a_full_disk(example, tmp_path, monkeypatch, after):
    """Wherever it happens: one line, and once there is room the same command goes on to the same end."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "write", Full(after))
        refused(call("run", "fedavg", "--on", example.setting, "--out", out, "--json"), "no space left", "make room")
    assert not (out / "result.json").exists()
    found = said(call("run", "fedavg", "--on", example.setting, "--out", out, "--json"))
    assert found["digest"] == example.said["digest"]
    assert tables(out) == tables(example.folder)


@pytest.mark.parametrize("after", [0, 2, 5])
def test_a_full_disk_names_the_file(example, tmp_path, monkeypatch, after):
    """The error of a write has no file's name of its own."""
    left, sync = [after], os.fsync

    def full(handle):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    line = refused(call("run", "fedavg", "--on", example.setting, "--out", tmp_path / "out", "--json"), "make room")
    named = Path(line.removeprefix("heterophony: ").partition(": no space left")[0])
    assert tmp_path / "out" in named.parents


def test_export_to_a_full_disk(example, tmp_path, monkeypatch):
    monkeypatch.setattr(Disk, "write", Full(0))
    line = refused(call("export", example.folder, "--node", "a", "--to", tmp_path / "m"), "no space left")
    assert "resume" not in line
    assert names(tmp_path) == set()


# -- our own failures ---------------------------------------------------------------------------------------------
def test_a_failure_of_the_program_is_exit_1(process, small):
    """It is no fault of the user, so that a traceback is right; stdout stays clean."""
    broken = "import heterophony.settings.building as b; b.build = lambda *_: [][1]"
    child = process("run", "solo", "--on", small, "--json", code=broken)
    stdout, stderr = child.communicate(timeout=60)
    assert (child.returncode, stdout) == (1, "")
    assert "IndexError" in stderr


def test_a_value_error_of_a_library_is_not_the_users_fault(small, monkeypatch):
    monkeypatch.setattr("heterophony.settings.building.build", lambda *_: np.zeros(3).reshape(2, 2))
    answer = call("run", "solo", "--on", small)
    assert answer.exit_code == 1
    assert isinstance(answer.exception, ValueError)


def test_the_module_runs_as_a_program(process, example):
    child = process("show", example.folder, "--json")
    stdout, stderr = child.communicate(timeout=60)
    assert (child.returncode, stderr) == (0, "")
    assert json.loads(stdout) == example.said


def test_a_private_test_has_a_column_of_its_own(small):
    plain = call("run", "solo", "--on", small, "--rounds", "1")
    assert plain.exit_code == 0
    assert "private test" not in plain.stdout
    private = call("run", "solo", "--on", small, "--rounds", "1", "--set", "data.private_test=true")
    assert private.exit_code == 0, private.stderr
    assert "private test" in private.stdout


# -- what a newcomer does wrong, or expects ------------------------------------------------------------------
def test_a_run_is_not_made_shorter(finished, example):
    for words in (("resume", finished), ("run", "fedavg", "--on", example.setting, "--out", finished)):
        refused(call(*words, "--rounds", 1), finished, "a run of 2 rounds")
    assert said(call("run", "fedavg", "--on", example.setting, "--out", finished, "--json"))["rounds"] == 2
    assert said(call("resume", finished, "--rounds", 3, "--json"))["rounds"] == 3
    assert said(call("run", "fedavg", "--on", example.setting, "--out", finished, "--json"))["rounds"] == 3


@pytest.mark.parametrize("size", [0, 1000])
def test_a_ledger_that_is_cut_short_is_named(finished, size):
    os.truncate(finished / "ledger.jsonl", size)
    refused(call("ledger", finished), "ledger.jsonl is cut short")


def test_runs_on_other_data_are_not_compared(example, small, tmp_path):
    assert call("run", "solo", "--on", small, "--seed", 1, "--out", tmp_path / "seed").exit_code == 0
    refused(call("show", example.folder, "--against", tmp_path / "seed"), "seed: 0 and 1")
    assert call("run", "solo", "--on", small, "--set", "data.side=20", "--out", tmp_path / "side").exit_code == 0
    refused(call("show", example.folder, "--against", tmp_path / "side"), "differ in their data")
    assert call("run", "solo", "--on", small, "--rounds", 1, "--out", tmp_path / "short").exit_code == 0
    assert "(after 1 round)" in call("show", example.folder, "--against", tmp_path / "short").stdout


NETS = """
from torch import nn
def linear(in_channels, size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * size * size, classes))
def wide(in_channels, size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * size * size, classes + 2))
def images_alone(in_channels, size, classes):
    return nn.Linear(3, classes)
"""


def test_a_network_of_ones_own_fits_or_is_named(small, tmp_path, monkeypatch):
    written(tmp_path / "netsof_a_newcomer.py", NETS)
    monkeypatch.syspath_prepend(tmp_path)
    given = ["run", "fedavg", "--on", small, "--set"]
    refused(call(*given, "models.participants=netsof_a_newcomer:wide"), "(2, 12)", "10 classes")
    refused(call(*given, "models.participants=netsof_a_newcomer:images_alone"), "cannot read images of 1 x 16 x 16")
    refused(call(*given, "models.participants=nowhere:linear"), "in this folder or on PYTHONPATH")
    out, to = tmp_path / "out", tmp_path / "m.safetensors"
    assert call(*given, "models.participants=netsof_a_newcomer:linear", "--out", out).exit_code == 0
    assert call("export", out, "--node", "a", "--to", to).exit_code == 0
    monkeypatch.setattr(sys.modules["netsof_a_newcomer"], "linear", sys.modules["netsof_a_newcomer"].wide)
    with pytest.raises(exported.DataError, match="not the one that was exported"):
        exported.load(to, trust=True)
    monkeypatch.delattr(sys.modules["netsof_a_newcomer"], "linear")
    with pytest.raises(exported.DataError, match="'linear' in module"):
        exported.load(to, trust=True)


def test_the_working_folder_is_where_networks_are_looked_for(small, tmp_path):
    written(tmp_path / "netsof_another.py", NETS)
    words = ["run", "fedavg", "--on", str(small), "--rounds", "1", "--set", "models.participants=netsof_another:linear"]
    script = "import sys; sys.path = [p for p in sys.path if p]; from heterophony.cli import main; main()"
    command = [sys.executable, "-c", script, *words]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_methods_say_what_leaves_a_node():
    text = call("methods", "fml").stdout
    assert "Sent by a client: the weights of its copy" in text
    assert "Paper: Shen et al." in text
    assert "alpha" in text


@pytest.mark.parametrize(
    "words", ["fml alpha=7", "fml beta=-5", "fedprox mu=-1", "fedmd lwof=-1", "fedmd rho=0", "fccl lambda_col=-1",
              "fedavg momentum=5"],
)  # fmt: skip
def test_options_out_of_range_are_named(words, small):
    method, change = words.split()
    refused(call("run", method, "--on", small, "--set", change), change.split("=")[0])


# -- a user's own code ----------------------------------------------------------------------------------------------
FAULTY = """
from heterophony.methods import FedAvg


def loss(nets, batch):
    return nets["model"](batch.x).nonsense()


def in_a_loss(**options):
    return FedAvg(loss=loss, **options)
"""


@pytest.mark.parametrize("engine", ["local", "process"])
def test_a_bug_of_ones_own_is_told_by_its_own_lines(small, tmp_path, monkeypatch, engine):
    written(tmp_path / "faulty.py", FAULTY)
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = call("run", "faulty:in_a_loss", "--on", small, "--rounds", "1", "--engine", engine)
    assert (answer.exit_code, answer.stdout) == (1, "")
    *trace, line = [each for each in answer.stderr.splitlines() if "round" not in each or "node" in each]
    place = "AttributeError: 'Tensor' object has no attribute 'nonsense' (faulty.py, line 6, in loss)"
    assert line == f"heterophony: node a, round 0, Fit: {place}"
    files = [each for each in trace if each.strip().startswith("File")]
    assert len(files) == (1 if engine == "local" else 0)  # from another process only the line comes
    assert all("faulty.py" in each for each in files)


def test_a_setting_is_no_path(tmp_path):
    for name in ("../x", "..", "", "a/b"):
        refused(call("run", "solo", "--on", written(tmp_path / "s.toml", f'name = "{name}"\n{SMALL}')), "name = ", name)


def test_a_name_with_a_dot_is_quoted(tmp_path):
    setting = written(
        tmp_path / "s.toml", SMALL.replace("domains.b", 'domains."b.1"').replace("rounds = 2", "rounds = 1")
    )
    noisy = said(call("run", "solo", "--on", setting, "--set", 'data.participants."b.1".label_noise=0.5', "--json"))
    plain = said(call("run", "solo", "--on", setting, "--json"))
    assert noisy["digest"] != plain["digest"]
    refused(call("run", "solo", "--on", setting, "--set", "data.participants.b.1.label_noise=0.5"), "participants")


def test_predictions_have_the_names_of_classes(tmp_path):
    source = load("digits-embedded").train
    for label, name in enumerate(("nought", "one")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for row in np.flatnonzero(source.y == label)[:20]:
            pil.fromarray(source.x[row, ..., 0]).save(tmp_path / "pictures" / name / f"{row}.png")
    data = f'[data]\nsource = "folder:{tmp_path / "pictures"}"\ntest = 0.2\nclients = 2\nside = 16\n'
    setting = written(tmp_path / "s.toml", f"rounds = 1\n{data}{MLP}")
    assert call("run", "solo", "--on", setting, "--out", tmp_path / "out").exit_code == 0
    assert call("export", tmp_path / "out", "--node", "c0", "--to", tmp_path / "m").exit_code == 0
    found = said(call("predict", tmp_path / "m", next((tmp_path / "pictures" / "one").iterdir()), "--json"))
    assert found["names"] == [("nought", "one")[found["labels"][0]]]
