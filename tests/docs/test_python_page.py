"""docs/how-to/python.md and examples/python run as they stand."""

import json
import re
import runpy
import shlex
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heterophony.cli import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "python.md"
EXAMPLES = ROOT / "examples" / "python"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, from which modules are imported as the command line does it."""
    if not EXAMPLES.exists():
        pytest.skip("not in a checkout")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)
    yield tmp_path
    sys.modules.pop("mine", None)


def ran(*words):
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.stderr
    return answer


def test_the_page_runs_as_it_stands(here):
    first, loss, score, federation, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (here / "mine.py").write_text(first + loss + score)
    np.savez(here / "new.npz", x=np.zeros((2, 6), np.float32))
    commands = re.search(r"\n```\n(heterophony run ditto .*?)```", PAGE.read_text(), re.DOTALL)[1]
    for line in commands.strip().splitlines():
        ran(*shlex.split(line)[1:])
    (here / "ours.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    answer = CliRunner().invoke(app, ["run", "ditto", "--on", "ours.toml", "--rounds", "1"])
    assert "there are rows for validation already" in answer.stderr
    text = (here / "ours.toml").read_text()
    (here / "ours.toml").write_text(re.sub(r"data.validation.*\n", "", text))
    ran("run", "ditto", "--on", "ours.toml", "--rounds", "1")
    (here / "new.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 5},{i % 3 / 2}\n" for i in range(40)))
    task = re.search(r"`task = (\{.*?\})` in", PAGE.read_text())[1]
    (here / "new.toml").write_text(
        f'[data]\nsource = "new.csv"\ntest = 0.3\nclients = 2\ntask = {task}\n[data.arrays]\nx = ["a", "b"]\ny = "y"\n'
        '[models]\nparticipants = "linear"\n'
    )
    assert "within_half" in ran("run", "fedavg", "--on", "new.toml", "--rounds", "1").stdout
    ran("run", "mine:careful", "--on", "mine:world", "--set", "lr=0.05", "--rounds", "1")
    module = types.ModuleType("page")
    exec(compile(first + loss + federation, "python.md", "exec"), module.__dict__)
    assert module.result.metrics().acc > 0.6


def test_the_example_of_thirty_people_runs(here):
    (here / "mine.py").write_text((EXAMPLES / "mine.py").read_text())
    words = ("--on", "mine:world", "--rounds", "6", "--set", "batch=16")
    found = json.loads(ran("run", "mine:careful", *words, "--out", "run", "--json").stdout)
    assert len(found["metrics"]["participants"]) == 30
    assert found["metrics"]["acc"] > 0.5  # four activities: chance is 0.25
    ran("export", "run", "--node", "p3", "--to", "p3.safetensors")
    mine = sys.modules["mine"]
    own = mine.world().data["p3"]["test"]
    np.savez("new.npz", x=own.x.numpy())
    labels = json.loads(ran("predict", "p3.safetensors", "new.npz", "--trust", "--json").stdout)["labels"]
    assert np.mean(np.array(labels) == own.y.numpy()) > 0.5


def test_the_example_of_a_regression_runs(here, capsys):
    module = runpy.run_path(str(EXAMPLES / "regression.py"))
    result = module["main"]()
    assert "MAE on the own station" in capsys.readouterr().out
    scores = result.table.task.scores
    assert [score.name for score in scores] == ["mae", "rmse", "r2"]
    assert result.metrics().wdp < result.metrics().cdp  # each has a rule of its own
    assert result.metrics().wdp < 0.5
